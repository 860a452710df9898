//! How many packets of media the engines have opened: the engine says nothing of one that it does not take.
//!
//! A packet of SRTP or SRTCP is deciphered once its tag has verified, or both at once. So the ciphers of the stock provider are counted here: where
//! an engine was given a packet and has deciphered none, it did not take it. One exception: SRTCP under AES-CM that its sender has signed and
//! not encrypted (RFC 3711 section 3.4, a zero E flag), which the engine takes undeciphered, counts as refused. WebRTC's clients encrypt it.

use std::cell::Cell;

use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, Aes128CmSha1_80Cipher, CryptoError, SrtpProvider,
    SupportedAeadAes128Gcm, SupportedAeadAes256Gcm, SupportedAes128CmSha1_80,
};

thread_local! {
    static OPENED: Cell<u64> = const { Cell::new(0) };
}

/// How many packets the engines of this thread have opened so far.
pub(crate) fn opened() -> u64 {
    OPENED.get()
}

fn count<T, E>(deciphered: Result<T, E>) -> Result<T, E> {
    if deciphered.is_ok() {
        OPENED.set(OPENED.get().wrapping_add(1));
    }
    deciphered
}

/// A provider whose ciphers count.
#[derive(Debug)]
pub(crate) struct Counting {
    stock: &'static dyn SrtpProvider,
    aes_128_cm: &'static Ciphers<dyn SupportedAes128CmSha1_80>,
    aes_128_gcm: &'static Ciphers<dyn SupportedAeadAes128Gcm>,
    aes_256_gcm: &'static Ciphers<dyn SupportedAeadAes256Gcm>,
}

impl Counting {
    /// Counts what the ciphers of this provider open. Engines want a `'static` one: to be made once per process.
    pub(crate) fn leaked(stock: &'static dyn SrtpProvider) -> &'static Self {
        Box::leak(Box::new(Self {
            stock,
            aes_128_cm: Box::leak(Box::new(Ciphers(stock.aes_128_cm_sha1_80()))),
            aes_128_gcm: Box::leak(Box::new(Ciphers(stock.aead_aes_128_gcm()))),
            aes_256_gcm: Box::leak(Box::new(Ciphers(stock.aead_aes_256_gcm()))),
        }))
    }
}

impl SrtpProvider for Counting {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        self.aes_128_cm
    }

    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        self.aes_128_gcm
    }

    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        self.aes_256_gcm
    }

    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        self.stock.srtp_aes_128_ecb_round(key, input, output);
    }

    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        self.stock.srtp_aes_256_ecb_round(key, input, output);
    }
}

/// What makes the ciphers of a profile.
#[derive(Debug)]
struct Ciphers<T: ?Sized + 'static>(&'static T);

impl SupportedAes128CmSha1_80 for Ciphers<dyn SupportedAes128CmSha1_80> {
    fn create_cipher(&self, key: [u8; 16], encrypt: bool) -> Box<dyn Aes128CmSha1_80Cipher> {
        Box::new(Counted(self.0.create_cipher(key, encrypt)))
    }
}

impl SupportedAeadAes128Gcm for Ciphers<dyn SupportedAeadAes128Gcm> {
    fn create_cipher(&self, key: [u8; 16], encrypt: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(Counted(self.0.create_cipher(key, encrypt)))
    }
}

impl SupportedAeadAes256Gcm for Ciphers<dyn SupportedAeadAes256Gcm> {
    fn create_cipher(&self, key: [u8; 32], encrypt: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(Counted(self.0.create_cipher(key, encrypt)))
    }
}

/// A cipher, and what it opens is counted.
#[derive(Debug)]
struct Counted<T: ?Sized>(Box<T>);

impl Aes128CmSha1_80Cipher for Counted<dyn Aes128CmSha1_80Cipher> {
    fn encrypt(
        &mut self,
        iv: &[u8; 16],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CryptoError> {
        self.0.encrypt(iv, input, output)
    }

    fn decrypt(
        &mut self,
        iv: &[u8; 16],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CryptoError> {
        count(self.0.decrypt(iv, input, output))
    }
}

impl AeadAes128GcmCipher for Counted<dyn AeadAes128GcmCipher> {
    fn encrypt(
        &mut self,
        iv: &[u8; 12],
        aad: &[u8],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CryptoError> {
        self.0.encrypt(iv, aad, input, output)
    }

    fn decrypt(
        &mut self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        count(self.0.decrypt(iv, aads, input, output))
    }
}

impl AeadAes256GcmCipher for Counted<dyn AeadAes256GcmCipher> {
    fn encrypt(
        &mut self,
        iv: &[u8; 12],
        aad: &[u8],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CryptoError> {
        self.0.encrypt(iv, aad, input, output)
    }

    fn decrypt(
        &mut self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        count(self.0.decrypt(iv, aads, input, output))
    }
}
