//! What responses say.

use axum::http::HeaderMap;

pub(crate) fn header(response: &reqwest::Response, name: &str) -> String {
    response
        .headers()
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

/// What an error response says.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) code: String,
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    pub(crate) headers: HeaderMap,
}

/// Reads an error response and checks that it has the one shape.
pub(crate) async fn told(response: reqwest::Response) -> Told {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    assert_eq!(header(&response, "content-type"), "application/json");
    let body: serde_json::Value =
        serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
    let object = body.as_object().expect("an object");
    assert_eq!(object.keys().collect::<Vec<_>>(), ["error"], "{body}");
    let error = object["error"].as_object().expect("an object");
    let mut fields: Vec<&str> = error.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["code", "message", "param", "type"], "{body}");
    let text = |name: &str| error[name].as_str().expect("text").to_owned();
    Told {
        status,
        kind: text("type"),
        code: text("code"),
        param: error["param"].as_str().map(str::to_owned),
        message: text("message"),
        headers,
    }
}
