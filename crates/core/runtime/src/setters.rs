//! Setters of options, declared as a list.

/// For each field, a method that takes the options by value and returns them with the field set.
macro_rules! setters {
    ($options:ident { $($(#[$doc:meta])+ $method:ident: $field:ident = $type:ty;)+ }) => {
        impl $options {
            $(
                $(#[$doc])+
                #[must_use]
                pub fn $method(mut self, $field: $type) -> $options {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
