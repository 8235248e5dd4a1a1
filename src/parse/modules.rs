//! `/proc/modules`: `name size references users state address [taints]`.

use std::collections::BTreeMap;

use crate::facts::host::Module;
use crate::ident::printable;

/// Modules by name. A line that is cut short gives none.
pub fn modules(text: &str) -> BTreeMap<String, Module> {
    text.lines().filter_map(module).collect()
}

fn module(line: &str) -> Option<(String, Module)> {
    let mut fields = line.split(' ').filter(|field| !field.is_empty());
    let name = fields.next()?;
    let users = fields.nth(2)?;
    let state = fields.next().filter(|state| matches!(*state, "Live" | "Loading" | "Unloading"))?;
    let used_by = users.split(',').filter(|user| !matches!(*user, "" | "-")).map(|user| printable(user, 64)).collect();
    Some((printable(name, 64), Module { state: state.to_owned(), used_by }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_read_with_their_state_and_users() {
        let read = modules(
            "nvidia_uvm 4956160 0 - Live 0x0000000000000000 (PO)\n\
             nvidia 9723904 35 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (PO)\n\
             nouveau 2306048 0 - Loading 0x0\n",
        );
        assert_eq!(read["nvidia"].used_by, ["nvidia_uvm", "nvidia_modeset"]);
        assert_eq!(read["nvidia_uvm"], Module { state: "Live".into(), used_by: Vec::new() });
        assert_eq!(read["nouveau"].state, "Loading");
    }

    #[test]
    fn a_line_that_is_cut_short_gives_no_module() {
        assert_eq!(modules("nvidia 9723904 35 nvidia_uvm, Li"), BTreeMap::new());
        assert_eq!(modules("nvidia 9723904\n\n \nnvidia"), BTreeMap::new());
    }
}
