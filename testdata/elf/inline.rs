// SPDX-License-Identifier: Apache-2.0

// Functions inlined into each other in Rust, for comparing source positions.

use std::collections::HashMap;

pub struct Registry {
    shapes: Vec<Box<dyn Fn(u64) -> u64>>,
    names: HashMap<u64, String>,
}

#[inline]
fn square(x: u64) -> u64 {
    x.wrapping_mul(x)
}

#[inline(never)]
fn weigh(x: u64, names: &HashMap<u64, String>) -> u64 {
    let y = square(x) + names.get(&x).map_or(0, |n| n.len() as u64);
    if y > 1_000_000 {
        panic!("too heavy: {y}");
    }
    y
}

impl Registry {
    #[inline(never)]
    pub fn total(&self) -> u64 {
        let mut sum = 0u64;
        for (i, shape) in self.shapes.iter().enumerate() {
            sum = sum.wrapping_add(shape(weigh(i as u64, &self.names)));
        }
        sum
    }
}

fn main() {
    let n = std::env::args().count() as u64 + 5;
    let mut r = Registry { shapes: Vec::new(), names: HashMap::new() };
    for i in 0..n {
        r.names.insert(i, format!("shape {i}"));
        r.shapes.push(Box::new(move |x| square(x) + i));
    }
    println!("{}", r.total());
}
