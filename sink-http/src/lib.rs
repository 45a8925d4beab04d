//! sink-http
