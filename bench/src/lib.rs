//! What a request costs: the floor, the peers, our own.
