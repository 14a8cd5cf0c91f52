//! Elements of XML, written out with indentation.

use std::fmt::Write as _;

/// An element.
#[derive(Clone, Debug)]
pub(super) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: Option<String>,
    children: Vec<Element>,
}

impl Element {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            attributes: Vec::new(),
            text: None,
            children: Vec::new(),
        }
    }

    /// With an attribute.
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// With text in it.
    pub(super) fn text(mut self, text: impl ToString) -> Self {
        self.text = Some(text.to_string());
        self
    }

    /// With a child.
    pub(super) fn child(mut self, child: Self) -> Self {
        self.children.push(child);
        self
    }

    /// With children.
    pub(super) fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }

    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, "");
        text
    }

    fn write(&self, text: &mut String, indent: &str) {
        let _ = write!(text, "{indent}<{}", self.name);
        for (name, value) in &self.attributes {
            let _ = write!(text, " {name}='{}'", escaped(value));
        }
        match (&self.text, self.children.is_empty()) {
            (None, true) => text.push_str("/>\n"),
            (Some(inner), _) => {
                let _ = writeln!(text, ">{}</{}>", escaped(inner), self.name);
            }
            (None, false) => {
                text.push_str(">\n");
                for child in &self.children {
                    child.write(text, &format!("{indent}  "));
                }
                let _ = writeln!(text, "{indent}</{}>", self.name);
            }
        }
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            // XML 1.0 has no way to write these.
            c if c.is_control() => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_xml_is_escaped() {
        let element = Element::new("a")
            .with("b", "<'&'>")
            .child(Element::new("c").text("x & y\u{1}"));
        assert_eq!(
            element.render(),
            "<a b='&lt;&apos;&amp;&apos;&gt;'>\n  <c>x &amp; y?</c>\n</a>\n"
        );
    }
}
