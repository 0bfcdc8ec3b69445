//! One cell of a row.
//!
//! The four kinds that every engine has, in one order: nothing, numbers,
//! texts, bytes. An engine that sorts texts by a language must be told to sort
//! them by their bytes.

use crate::ids::{
    CollectionId, DeadId, FollowId, IndexId, KeyId, ParkedId, PendingId, RecordId, Rev, SortId,
};

/// The content of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    #[default]
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Int,
    Text,
    Blob,
    /// A number, a text or nothing: what records are sorted by.
    Any,
}

/// A row that an engine returned and that cannot be one of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("damaged row of table {table}, column {column}")]
pub struct Damaged {
    pub table: &'static str,
    pub column: &'static str,
}

/// A Rust type that fits into a cell.
pub trait Cell: Sized {
    const KIND: Kind;
    const NULLABLE: bool = false;
    fn to_value(&self) -> Value;
    /// `None` if the value is not of this type.
    fn from_value(value: &Value) -> Option<Self>;
    /// The same, without a copy: texts and bytes are moved out of the cell.
    fn take(value: &mut Value) -> Option<Self> {
        Self::from_value(value)
    }
}

impl Cell for i64 {
    const KIND: Kind = Kind::Int;
    fn to_value(&self) -> Value {
        Value::Int(*self)
    }
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }
}

impl Cell for bool {
    const KIND: Kind = Kind::Int;
    fn to_value(&self) -> Value {
        Value::Int(i64::from(*self))
    }
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).map(|number| number != 0)
    }
}

impl Cell for Rev {
    const KIND: Kind = Kind::Int;
    fn to_value(&self) -> Value {
        Value::Int(self.0.cast_signed())
    }
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).map(|number| Self(number.cast_unsigned()))
    }
}

impl Cell for String {
    const KIND: Kind = Kind::Text;
    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
    fn take(value: &mut Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(std::mem::take(text)),
            _ => None,
        }
    }
}

impl Cell for Vec<u8> {
    const KIND: Kind = Kind::Blob;
    fn to_value(&self) -> Value {
        Value::Blob(self.clone())
    }
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
    fn take(value: &mut Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Some(std::mem::take(bytes)),
            _ => None,
        }
    }
}

impl Cell for Value {
    const KIND: Kind = Kind::Any;
    const NULLABLE: bool = true;
    fn to_value(&self) -> Value {
        self.clone()
    }
    fn from_value(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
    fn take(value: &mut Value) -> Option<Self> {
        Some(std::mem::take(value))
    }
}

impl<T: Cell> Cell for Option<T> {
    const KIND: Kind = T::KIND;
    const NULLABLE: bool = true;
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
    fn take(value: &mut Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::take(value).map(Some),
        }
    }
}

macro_rules! id_cells {
    ($($name:ident),*) => {$(
        impl Cell for $name {
            const KIND: Kind = Kind::Int;
            fn to_value(&self) -> Value {
                Value::Int(self.0)
            }
            fn from_value(value: &Value) -> Option<Self> {
                i64::from_value(value).map(Self)
            }
        }
    )*};
}
id_cells!(
    KeyId,
    CollectionId,
    RecordId,
    IndexId,
    FollowId,
    SortId,
    DeadId,
    ParkedId,
    PendingId
);
