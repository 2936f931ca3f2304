//! The words of conditions: variables, methods and functions, each listed once.

/// Variables that are strings, numbers or addresses.
pub(crate) const PLAIN: &[&str] = &[
    "host", "path", "query", "url", "target", "method", "scheme", "listener", "port", "client",
    "user", "hour", "minute", "weekday", "random", "status", "size",
];

/// Variables that have members: `tls.sni`.
pub(crate) const TLS: &str = "tls";

/// The members of `tls`.
pub(crate) const TLS_MEMBERS: &[&str] = &["sni", "client_subject"];

/// Variables that are read by a name: `fields['accept']`.
pub(crate) const TABLES: &[&str] = &["fields", "cookies", "args", "response"];

/// Variables of a response.
pub(crate) const OF_RESPONSE: &[&str] = &["status", "size", "response"];

/// Methods of strings.
pub(crate) const METHODS: &[&str] =
    &["startsWith", "endsWith", "contains", "matches", "glob", "size", "lowerAscii"];

/// The method of addresses.
pub(crate) const WITHIN: &str = "within";

/// Functions.
pub(crate) const FUNCTIONS: &[&str] = &["share"];

/// Words that CEL keeps for itself, and words that look like operators.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "and",
    "or",
    "not",
    "has",
    "all",
    "exists",
    "exists_one",
    "map",
    "filter",
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "type",
];

/// Whether a list cannot have this name.
pub(crate) fn is_taken(name: &str) -> bool {
    let all = [PLAIN, &[TLS], TABLES, METHODS, &[WITHIN], FUNCTIONS, RESERVED];
    all.iter().any(|words| words.contains(&name))
}

/// All variables that a scope has.
pub(crate) fn variables(of_response: bool) -> impl Iterator<Item = &'static str> {
    let all = PLAIN.iter().chain([&TLS]).chain(TABLES).copied();
    all.filter(move |name| of_response || !OF_RESPONSE.contains(name))
}

/// What to write instead of a word of other languages.
pub(crate) fn instead_of(word: &str) -> Option<&'static str> {
    Some(match word {
        "and" | "AND" => "write `&&` for and",
        "or" | "OR" => "write `||` for or",
        "not" | "NOT" => "write `!` for not",
        "request" | "req" => "the variables have no prefix: write `host`, `path`, `fields['name']`",
        "headers" | "header" => "write `fields['name']`",
        _ => return None,
    })
}
