//! The tenants of a server and their tokens.

use std::fmt;

use super::Token;

/// Looks tokens up by the name of their tenant.
pub trait Tenants: fmt::Debug + Send + Sync {
    /// Whether clients must prove themselves at all.
    fn are_asked(&self) -> bool;

    /// The token of a tenant; `None` where there is none of that name. A client gets the same answer then as for a wrong token, in the
    /// same time, so this must take as long for names that are not there.
    fn token(&self, name: &str) -> Option<Token>;
}

/// One token for all clients: a single tenant without a name. Without a token nobody is asked.
impl Tenants for Option<Token> {
    fn are_asked(&self) -> bool {
        self.is_some()
    }

    fn token(&self, name: &str) -> Option<Token> {
        self.clone().filter(|_| name.is_empty())
    }
}
