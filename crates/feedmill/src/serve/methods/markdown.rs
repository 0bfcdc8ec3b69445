//! From the table to the page that people read, docs/api.md.

use super::{Auth, Method, Place};

/// One row for each method: how it is called, who may, what it refuses.
pub fn table(methods: &[Method]) -> String {
    let mut out = String::from(
        "| method | parameters | who | errors beside the common ones |\n|---|---|---|---|\n",
    );
    for method in methods {
        let name = match &method.nsid {
            Some(nsid) => format!("{} `{nsid}`", method.verb.name()),
            None => format!("{} `{}`", method.verb.name(), method.path),
        };
        let parameters: Vec<String> = method
            .parameters
            .iter()
            .filter(|parameter| parameter.place != Place::Path)
            .map(|parameter| match parameter.required {
                true => format!("**{}**", parameter.name),
                false => parameter.name.clone(),
            })
            .collect();
        let mut errors: Vec<&str> = Vec::new();
        for error in &method.errors {
            let common = super::ALWAYS.iter().any(|always| always.name == error.name);
            if !common && !errors.contains(&error.name) {
                errors.push(error.name);
            }
        }
        out.push_str(&format!(
            "| {name}<br>{} | {} | {} | {} |\n",
            method.about,
            parameters.join(", "),
            who(method.auth),
            errors.join(", ")
        ));
    }
    out
}

fn who(auth: Auth) -> &'static str {
    match auth {
        Auth::Open => "anybody",
        Auth::ServiceMaybe => "anybody; an account by service-auth",
        Auth::Service => "an account by service-auth",
        Auth::Notifier => "who holds `FEEDMILL_NOTIFY_TOKEN`",
        Auth::Operator => "the operator",
        Auth::App => "the app",
        Auth::AppOrReader => "the app, a reader",
    }
}
