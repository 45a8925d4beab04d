//! Finds a number that JSON cannot spell. serde_json would write `null` in its place.

use std::fmt::{self, Display, Write};

use serde::{Serialize, ser};

use crate::InvalidRecord;

/// Walks `value` as serde_json would and refuses the first number that is not finite.
pub(crate) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), InvalidRecord> {
    let mut path = String::new();
    match value.serialize(Walk { path: &mut path }) {
        Ok(()) => Ok(()),
        Err(Found::Number(number)) => {
            let path = path.strip_prefix('.').filter(|rest| !rest.is_empty()).unwrap_or(&path);
            let path = if path.is_empty() { "." } else { path };
            Err(InvalidRecord::NotFinite { number, path: path.to_owned() })
        }
        // The text may quote the value; serde_json will meet the same error and be asked for its kind.
        Err(Found::Other) => Err(InvalidRecord::NotJson { reason: "a value of it has no JSON form".into() }),
    }
}

#[derive(Debug)]
enum Found {
    Number(String),
    Other,
}

impl Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no JSON form")
    }
}

impl std::error::Error for Found {}

impl ser::Error for Found {
    fn custom<T: Display>(_: T) -> Self {
        Self::Other
    }
}

/// A serializer that writes nothing and keeps the path to where it stands.
struct Walk<'a> {
    path: &'a mut String,
}

/// The inside of a sequence, map or struct.
struct Inside<'a> {
    path: &'a mut String,
    index: usize,
    key: String,
}

impl<'a> Walk<'a> {
    fn inside(self) -> Inside<'a> {
        Inside { path: self.path, index: 0, key: String::new() }
    }

    fn variant(self, variant: &str) -> Inside<'a> {
        self.path.push('.');
        self.path.push_str(variant);
        self.inside()
    }

    fn number(self, number: f64) -> Result<(), Found> {
        if number.is_finite() { Ok(()) } else { Err(Found::Number(number.to_string())) }
    }
}

impl Inside<'_> {
    /// Walks one member; on success the path is as before, on failure it names the member.
    fn member<T: Serialize + ?Sized>(
        &mut self,
        name: impl FnOnce(&mut String),
        value: &T,
    ) -> Result<(), Found> {
        let length = self.path.len();
        name(self.path);
        value.serialize(Walk { path: self.path })?;
        self.path.truncate(length);
        Ok(())
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
        let index = self.index;
        self.index += 1;
        self.member(
            |path| {
                // Writing to a String cannot fail.
                let _ = write!(path, "[{index}]");
            },
            value,
        )
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Found> {
        self.member(
            |path| {
                path.push('.');
                path.push_str(name);
            },
            value,
        )
    }
}

macro_rules! nothing {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(fn $method(self, _: $type) -> Result<(), Found> {
            Ok(())
        })*
    };
}

impl<'a> ser::Serializer for Walk<'a> {
    type Ok = ();
    type Error = Found;
    type SerializeSeq = Inside<'a>;
    type SerializeTuple = Inside<'a>;
    type SerializeTupleStruct = Inside<'a>;
    type SerializeTupleVariant = Inside<'a>;
    type SerializeMap = Inside<'a>;
    type SerializeStruct = Inside<'a>;
    type SerializeStructVariant = Inside<'a>;

    nothing! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_i128: i128, serialize_u8: u8, serialize_u16: u16,
        serialize_u32: u32, serialize_u64: u64, serialize_u128: u128, serialize_char: char,
        serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str,
    }

    fn serialize_f32(self, number: f32) -> Result<(), Found> {
        self.number(f64::from(number))
    }

    fn serialize_f64(self, number: f64) -> Result<(), Found> {
        self.number(number)
    }

    fn serialize_none(self) -> Result<(), Found> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Found> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Found> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Found> {
        self.inside().field(variant, value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside<'a>, Found> {
        Ok(self.inside())
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside<'a>, Found> {
        Ok(self.inside())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside<'a>, Found> {
        Ok(self.inside())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'a>, Found> {
        Ok(self.variant(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside<'a>, Found> {
        Ok(self.inside())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inside<'a>, Found> {
        Ok(self.inside())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'a>, Found> {
        Ok(self.variant(variant))
    }
}

macro_rules! elements {
    ($($trait:ident::$method:ident),* $(,)?) => {
        $(impl ser::$trait for Inside<'_> {
            type Ok = ();
            type Error = Found;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
                self.element(value)
            }

            fn end(self) -> Result<(), Found> {
                Ok(())
            }
        })*
    };
}

elements! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! fields {
    ($($trait:ident),*) => {
        $(impl ser::$trait for Inside<'_> {
            type Ok = ();
            type Error = Found;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Found> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), Found> {
                Ok(())
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Inside<'_> {
    type Ok = ();
    type Error = Found;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Found> {
        // The key as JSON spells it, without its quotes; a key that is none is serde_json's to refuse.
        let spelled = serde_json::to_string(key).unwrap_or_default();
        self.key = spelled.trim_matches('"').to_owned();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
        let key = std::mem::take(&mut self.key);
        self.field(&key, value)
    }

    fn end(self) -> Result<(), Found> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Serialize)]
    struct Line {
        price: f64,
    }

    #[derive(Serialize)]
    enum Shape {
        Unit,
        Point(f32, f32),
        Named { side: Option<f64> },
    }

    fn found<T: Serialize>(value: &T) -> Option<String> {
        match check(value) {
            Ok(()) => None,
            Err(InvalidRecord::NotFinite { number, path }) => Some(format!("{number} at {path}")),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_number_that_is_not_finite_is_found_by_its_path() {
        assert_eq!(found(&f64::NAN).as_deref(), Some("NaN at ."));
        assert_eq!(
            found(&BTreeMap::from([("lines", vec![Line { price: 1.0 }, Line { price: f64::INFINITY }])]))
                .as_deref(),
            Some("inf at lines[1].price")
        );
        assert_eq!(
            found(&vec![Shape::Unit, Shape::Point(0.0, f32::NEG_INFINITY)]).as_deref(),
            Some("-inf at [1].Point[1]")
        );
        assert_eq!(found(&Shape::Named { side: Some(f64::NAN) }).as_deref(), Some("NaN at Named.side"));
    }

    #[test]
    fn finite_numbers_pass() {
        assert_eq!(found(&(1.0, Shape::Named { side: None }, BTreeMap::from([(7, f64::MAX)]))), None);
    }
}
