//! Connections with TLS.

use super::*;

#[tokio::test]
async fn tls_is_used_and_only_with_a_server_that_is_trusted() {
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::from(key))
        .expect("a configuration");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = Server::new().await;
    let port = server.0.local_addr().expect("bound").port();
    let file = std::env::temp_dir().join(format!("firsthop-ca-{}.pem", std::process::id()));
    let pem = pem::encode(&pem::Pem::new("CERTIFICATE", made.cert.der().to_vec()));
    std::fs::write(&file, pem).expect("written");
    let target = |extra| Target {
        url: format!("wss://localhost:{port}/").parse().expect("a URL"),
        headers: Vec::new(),
        tls: tls_config(Roots::None, extra).expect("TLS"),
    };
    let trusting = target(Some(file.as_path()));
    std::fs::remove_file(&file).expect("removed");

    let mut stranger = Session::new(Notes::default(), target(None));
    let refused = acceptor.accept(server.tcp().await).await;
    assert!(refused.is_err(), "the client turned away");
    assert_eq!(
        stranger.next().await,
        "lost: it could not be reached; again"
    );
    drop(stranger);

    let mut session = Session::new(Notes::default(), trusting);
    // The stranger may have come back once more.
    let mut socket = loop {
        if let Ok(stream) = acceptor.accept(server.tcp().await).await {
            break upgrade(stream).await.0;
        }
    };
    assert_eq!(session.next().await, "connected");
    socket.send(Frame::text("hello")).await.expect("sent");
    assert_eq!(session.next().await, "hello");
}
