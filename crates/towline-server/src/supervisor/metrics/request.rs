//! As much of HTTP as a scrape needs: the head of one request, and one answer with the end of the connection behind it.

/// Most bytes of a request's head.
pub(super) const HEAD_BYTES: usize = 8192;
/// Most fields of it.
const FIELDS: usize = 64;

/// A request, as far as it matters.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Request {
    method: String,
    path: String,
    /// The token that it brings; empty where it brings none.
    pub(super) bearer: Vec<u8>,
}

/// A fault of a request, and the answer to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Wrong {
    status: &'static str,
    fields: &'static str,
    text: &'static str,
}

impl Wrong {
    pub(super) const BUSY: Self = Self::new(
        "503 Service Unavailable",
        "",
        "too many connections at once; try again in a moment\n",
    );
    pub(super) const LATE: Self = Self::new(
        "408 Request Timeout",
        "",
        "the request did not come in time\n",
    );
    pub(super) const LONG: Self = Self::new(
        "431 Request Header Fields Too Large",
        "",
        "the request's head is too long; send GET /metrics with few header fields\n",
    );
    pub(super) const PAGE: Self = Self::new(
        "500 Internal Server Error",
        "",
        "the metrics could not be written\n",
    );
    pub(super) const TOKEN: Self = Self::new(
        "401 Unauthorized",
        "WWW-Authenticate: Bearer\r\n",
        "give the token of --metrics-token-file as a bearer token\n",
    );
    const METHOD: Self = Self::new(
        "405 Method Not Allowed",
        "Allow: GET\r\n",
        "only GET is answered\n",
    );
    const NONSENSE: Self = Self::new(
        "400 Bad Request",
        "",
        "that is no request of HTTP/1.1; send GET /metrics\n",
    );
    const PATH: Self = Self::new("404 Not Found", "", "there is /metrics, and nothing else\n");

    const fn new(status: &'static str, fields: &'static str, text: &'static str) -> Self {
        Self {
            status,
            fields,
            text,
        }
    }

    pub(super) fn response(&self) -> Vec<u8> {
        let fields = format!("{}Content-Type: text/plain\r\n", self.fields);
        response(self.status, &fields, self.text)
    }
}

impl Request {
    /// The request in `head`; `None` while its end has not come.
    pub(super) fn parse(head: &[u8]) -> Result<Option<Self>, Wrong> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Wrong::LONG),
            Err(_) => return Err(Wrong::NONSENSE),
        }
        let named =
            |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("authorization");
        let bearer = parsed.headers.iter().find(named).and_then(|field| {
            let (scheme, token) = field.value.split_at_checked("Bearer ".len())?;
            let token = scheme
                .eq_ignore_ascii_case(b"bearer ")
                .then(|| token.trim_ascii());
            token.map(<[u8]>::to_vec)
        });
        Ok(Some(Self {
            method: parsed.method.unwrap_or_default().to_owned(),
            path: parsed.path.unwrap_or_default().to_owned(),
            bearer: bearer.unwrap_or_default(),
        }))
    }

    /// Refuses a request for anything but the metrics.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let path = self.path.split('?').next();
        match (self.method.as_str(), path) {
            (_, path) if path != Some("/metrics") => Err(Wrong::PATH),
            ("GET", _) => Ok(()),
            _ => Err(Wrong::METHOD),
        }
    }
}

/// A whole answer; `fields` end with a line break each.
pub(super) fn response(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(head: &str) -> Result<(), Wrong> {
        Request::parse(head.as_bytes()).and_then(|request| request.expect("it is whole").check())
    }

    #[test]
    fn only_get_of_metrics_is_answered() {
        assert_eq!(checked("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Ok(()));
        assert_eq!(checked("GET /metrics?a=b HTTP/1.0\r\n\r\n"), Ok(()));
        for (head, wrong) in [
            ("GET / HTTP/1.1\r\n\r\n", Wrong::PATH),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", Wrong::PATH),
            ("POST /metrics HTTP/1.1\r\n\r\n", Wrong::METHOD),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Wrong::METHOD),
            ("GET /metrics HTTP/2\r\n\r\n", Wrong::NONSENSE),
            ("\u{16}\u{3}\u{1}hello\r\n\r\n", Wrong::NONSENSE),
        ] {
            assert_eq!(checked(head), Err(wrong), "{head}");
        }
    }

    #[test]
    fn half_a_request_waits_for_more() {
        let whole = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        for length in 0..whole.len() {
            assert_eq!(Request::parse(&whole[..length]), Ok(None), "{length}");
        }
    }

    #[test]
    fn too_many_fields_are_refused() {
        let fields = "A: b\r\n".repeat(FIELDS + 1);
        let head = format!("GET /metrics HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(checked(&head), Err(Wrong::LONG));
    }

    #[test]
    fn bearer_token_is_found() {
        let bearer = |field: &str| {
            let head = format!("GET /metrics HTTP/1.1\r\n{field}\r\n\r\n");
            let request = Request::parse(head.as_bytes()).unwrap().unwrap();
            String::from_utf8(request.bearer).unwrap()
        };
        assert_eq!(bearer("Authorization: Bearer a token"), "a token");
        assert_eq!(bearer("authorization: bearer  x "), "x");
        for none in [
            "Authorization: Basic x",
            "Authorization: Bear",
            "X: Bearer x",
        ] {
            assert_eq!(bearer(none), "", "{none}");
        }
    }

    #[test]
    fn answer_tells_its_length() {
        let answer = String::from_utf8(Wrong::TOKEN.response()).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n"));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    }
}
