//! Forms of stored responses.
