//! Tables as data: from one declaration come the Rust type of a row, its
//! conversion, and everything an engine needs to make and read the table.
//!
//! ```text
//! table! {
//!     /// What is known of an account.
//!     Account "account" key (key) {
//!         key: KeyId,
//!         status: i64,
//!     }
//!     indexes ["account_by_status" (status, key)]
//! }
//! ```

use crate::value::{Damaged, Kind, Value};

/// One column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub nullable: bool,
}

/// An order in which rows can be read. Rows whose first column is null are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    pub name: &'static str,
    pub columns: &'static [&'static str],
}

/// A table.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [Column],
    /// The columns of the primary key, in order; also the first order in which rows can be read.
    pub key: &'static [&'static str],
    pub indexes: &'static [Index],
}

impl Table {
    /// Where a column is in a row.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The values of some columns of a row.
    pub fn pick(&self, row: &[Value], names: &[&str]) -> Vec<Value> {
        let cells = names.iter().filter_map(|name| self.column(name));
        cells
            .map(|at| row.get(at).cloned().unwrap_or_default())
            .collect()
    }

    /// The primary key of a row.
    pub fn key_of(&self, row: &[Value]) -> Vec<Value> {
        self.pick(row, self.key)
    }
}

/// The Rust type of a table's rows.
pub trait Row: Sized + Clone + PartialEq {
    const TABLE: &'static Table;
    fn to_values(&self) -> Vec<Value>;
    fn from_values(values: &[Value]) -> Result<Self, Damaged>;
    /// The same, without a copy of its texts and bytes.
    fn take(values: &mut [Value]) -> Result<Self, Damaged>;
}

/// A column of a table holds what is not ours.
pub fn damaged<R: Row>(column: &'static str) -> Damaged {
    Damaged {
        table: R::TABLE.name,
        column,
    }
}

/// Declares tables; see the module.
#[macro_export]
macro_rules! table {
    ($(
        $(#[$meta:meta])*
        $name:ident $text:literal key ($($key:ident),+) {
            $($(#[$field_meta:meta])* $field:ident : $type:ty),+ $(,)?
        }
        indexes [$($index:literal ($($column:ident),+)),* $(,)?]
    )+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Default, PartialEq, Eq)]
            pub struct $name {
                $($(#[$field_meta])* pub $field: $type,)+
            }

            impl $crate::table::Row for $name {
                const TABLE: &'static $crate::table::Table = &$crate::table::Table {
                    name: $text,
                    columns: &[$($crate::table::Column {
                        name: stringify!($field),
                        kind: <$type as $crate::value::Cell>::KIND,
                        nullable: <$type as $crate::value::Cell>::NULLABLE,
                    }),+],
                    key: &[$(stringify!($key)),+],
                    indexes: &[$($crate::table::Index {
                        name: $index,
                        columns: &[$(stringify!($column)),+],
                    }),*],
                };

                fn to_values(&self) -> Vec<$crate::value::Value> {
                    vec![$($crate::value::Cell::to_value(&self.$field)),+]
                }

                fn from_values(values: &[$crate::value::Value]) -> Result<Self, $crate::value::Damaged> {
                    let mut values = values.iter();
                    Ok(Self {
                        $($field: values
                            .next()
                            .and_then($crate::value::Cell::from_value)
                            .ok_or($crate::value::Damaged { table: $text, column: stringify!($field) })?,)+
                    })
                }

                fn take(values: &mut [$crate::value::Value]) -> Result<Self, $crate::value::Damaged> {
                    let mut values = values.iter_mut();
                    Ok(Self {
                        $($field: values
                            .next()
                            .and_then($crate::value::Cell::take)
                            .ok_or($crate::value::Damaged { table: $text, column: stringify!($field) })?,)+
                    })
                }
            }
        )+

        /// Every table, in the order in which they are declared.
        pub const TABLES: &[&$crate::table::Table] = &[$(<$name as $crate::table::Row>::TABLE),+];
    };
}
