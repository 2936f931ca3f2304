//! The trial file: schema, writer, reader.
