//! The quick look for duplicate keys that is enough for nearly every text.
//!
//! It follows strings, brackets and commas and nothing else; whoever reads the text afterwards
//! finds what is no JSON. Wherever two readers could see different things (an escaped key, a lone
//! surrogate, a number beyond all bounds, many keys, deep nesting, no UTF-8) it does not
//! decide, and the thorough look of the module above does.

/// Keys of an object that are compared one by one.
const FEW: usize = 24;
/// Well below the depth that `serde_json` reads.
const DEEP: usize = 64;
/// Bytes of a number that is certainly within a double's range if it has no exponent.
const LONG: usize = 300;

struct Open {
    is_object: bool,
    /// Where its keys begin.
    begin: usize,
}

/// The names of the outermost object, if certainly no object has a key twice.
pub fn names(bytes: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(bytes).ok()?.as_bytes();
    let mut open: Vec<Open> = Vec::new();
    let mut keys: Vec<&[u8]> = Vec::new();
    let mut outermost = Vec::new();
    let mut key_comes = false;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let (string, end) = string(text, at)?;
                at = end;
                if key_comes {
                    let begin = open.last()?.begin;
                    let ours = keys.get(begin..)?;
                    if string.contains(&b'\\') || ours.len() >= FEW || ours.contains(&string) {
                        return None;
                    }
                    keys.push(string);
                    key_comes = false;
                }
            }
            b'{' | b'[' => {
                let is_object = *byte == b'{';
                open.push(Open { is_object, begin: keys.len() });
                if open.len() > DEEP {
                    return None;
                }
                key_comes = is_object;
            }
            b'}' | b']' => {
                let closed = open.pop()?;
                if open.is_empty() && closed.is_object {
                    outermost = keys.clone();
                }
                keys.truncate(closed.begin);
                key_comes = false;
            }
            b',' => key_comes = open.last()?.is_object,
            b'-' | b'0'..=b'9' => at = number(text, at)?,
            _ => {}
        }
    }
    Some(outermost.into_iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect())
}

/// What is between the quotes, and where the text goes on.
fn string(text: &[u8], begin: usize) -> Option<(&[u8], usize)> {
    let mut at = begin;
    loop {
        at += plain_length(text.get(at..)?);
        match text.get(at)? {
            b'"' => return Some((text.get(begin..at)?, at + 1)),
            _ if is_surrogate(text.get(at + 1..)?) => return None,
            _ => at += 2,
        }
    }
}

/// How far there is neither a quote nor a backslash. In pieces, so that the compiler compares
/// many bytes at once.
fn plain_length(text: &[u8]) -> usize {
    const PIECE: usize = 32;
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\';
    let pieces = text.chunks_exact(PIECE);
    let plain =
        pieces.take_while(|piece| !piece.iter().fold(false, |found, byte| found | special(byte))).count() * PIECE;
    let rest = text.get(plain..).unwrap_or_default();
    plain + rest.iter().position(special).unwrap_or(rest.len())
}

/// `ud8…` to `udf…`: half of a character, which may stand alone.
fn is_surrogate(escape: &[u8]) -> bool {
    matches!(escape, [b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..])
}

fn number(text: &[u8], begin: usize) -> Option<usize> {
    let rest = text.get(begin..)?;
    let length = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.')).unwrap_or(rest.len());
    let exponent = matches!(rest.get(length), Some(b'e' | b'E'));
    if exponent || length > LONG { None } else { Some(begin + length) }
}
