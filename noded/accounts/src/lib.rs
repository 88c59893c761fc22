//! The accounting service: what jobs and steps came to, in a database.
