//! `nodegate collector …`: run the collector, and look after its keys, tokens and store.
