//! One check a rule, for every store and sink.
