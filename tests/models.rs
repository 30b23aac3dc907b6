//! The form of the models that loom runs, for all crates that have some.

/// A test of each model as it is, and one with each mistake that it must find.
macro_rules! models {
    ($($name:ident: $run:expr, $($finds:ident $mistake:ident)+;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn holds() {
                ($run)(None);
            }

            $(
                #[test]
                #[should_panic]
                fn $finds() {
                    ($run)($mistake);
                }
            )+
        }
    )*};
}
