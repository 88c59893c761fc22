//! What doors and links of all daemons share.
//!
//! | module | what it is |
//! |---|---|
//! | [`conversations`] | commands under way whose replies come over another link |
//! | [`relay`] | conversations that go on with another daemon |
//! | [`guests`] | how many connections and requests of a user there may be at a door |

pub mod conversations;
pub mod guests;
pub mod relay;
