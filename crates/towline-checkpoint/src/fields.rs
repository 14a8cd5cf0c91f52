//! Fields of the files' tables, each taken once: what is left over is of another release, and no guess is made at it.

use toml::{Table, Value};

/// See the module's text.
pub(crate) struct Fields(Table);

impl Fields {
    pub(crate) fn new(table: Table) -> Self {
        Self(table)
    }

    /// The fields of a file; `None` where it cannot be read.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok()?.parse().ok().map(Self)
    }

    pub(crate) fn number(&mut self, name: &str) -> Option<u64> {
        match self.0.remove(name)? {
            Value::Integer(number) => number.try_into().ok(),
            _ => None,
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        text(self.0.remove(name)?)
    }

    pub(crate) fn truth(&mut self, name: &str) -> Option<bool> {
        self.0.remove(name)?.as_bool()
    }

    pub(crate) fn texts(&mut self, name: &str) -> Option<Vec<String>> {
        match self.0.remove(name)? {
            Value::Array(values) => values.into_iter().map(text).collect(),
            _ => None,
        }
    }

    /// Tables of one name, of which there may be none.
    pub(crate) fn tables(&mut self, name: &str) -> Option<Vec<Self>> {
        let table = |value| match value {
            Value::Table(table) => Some(Self(table)),
            _ => None,
        };
        match self.0.remove(name) {
            None => Some(Vec::new()),
            Some(Value::Array(values)) => values.into_iter().map(table).collect(),
            Some(_) => None,
        }
    }

    /// Whether nothing is left over.
    pub(crate) fn are_all(&self) -> bool {
        self.0.is_empty()
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A text between quotes, as the parser reads it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                quoted.push_str(&format!("\\U{:08x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_comes_back(text in any::<String>()) {
            let file = format!("text = {}", quoted(&text));
            let mut fields = Fields::parse(file.as_bytes()).expect("it is TOML");
            prop_assert_eq!(fields.text("text"), Some(text));
            prop_assert!(fields.are_all());
        }
    }
}
