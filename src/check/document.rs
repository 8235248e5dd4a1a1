//! The page about the checks, `docs/checks.md`, made from the table of kinds.

use std::fmt::Write;

use super::{KINDS, Kind};

/// The whole page. `nodegate checks document` prints it, and a test holds the file against it.
pub fn documentation() -> String {
    let mut page = String::from(
        "# The checks\n\n\
         <!-- Made from the code by `nodegate checks document`; edit `src/check/*.md` and make it again. -->\n\n\
         In the order in which a run uses them. A step passes only when every subject that it expected was\n\
         judged; what could not be read ends undecided and never passes.\n\n\
         | check | a pass proves |\n|---|---|\n",
    );
    for kind in KINDS {
        line(&mut page, &format!("| [`{0}`](#{0}) | {1} |", kind.id, kind.proves));
    }
    for kind in KINDS {
        section(&mut page, kind);
    }
    page
}

fn section(page: &mut String, kind: &Kind) {
    line(page, &format!("\n## {}\n", kind.id));
    line(page, kind.explanation.trim_end());
    line(page, "\n### Parameters and cost\n");
    let parameters: Vec<String> = kind.parameters.iter().map(|name| format!("`{name}`")).collect();
    line(page, &format!("- A class sets: {}.", parameters.join(", ")));
    line(page, &format!("- Needs: {}.", needs(kind)));
    line(page, &format!("- Takes: {}.", cost(kind)));
}

/// What a run of this kind needs beyond an ordinary user on any host.
pub fn needs(kind: &Kind) -> String {
    let mut needs: Vec<&str> = Vec::new();
    if kind.idle {
        needs.push("an idle node");
    }
    if !kind.privileges.is_empty() {
        needs.push(kind.privileges);
    }
    if needs.is_empty() { "nothing beyond an ordinary user".to_owned() } else { needs.join("; ") }
}

/// About how long it takes, by level where that differs.
pub fn cost(kind: &Kind) -> String {
    let [quick, standard, soak] = kind.cost;
    if quick == standard && standard == soak {
        format!("about {quick} s")
    } else {
        format!("about {quick} s at level quick, {standard} s at standard, {soak} s at soak")
    }
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("writing to a string cannot fail");
}
