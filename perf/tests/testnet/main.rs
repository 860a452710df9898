//! The programs that a test network is made with, as it uses them: told by lines, answering in JSON.

mod hold;
mod impair;
mod told;
