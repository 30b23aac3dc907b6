//! A device tree that its reader can be given.
//!
//! The crate `fdt` goes wrong (panics, or never ends) where a tree isn't what
//! it claims to be, and firmware's may be damaged. So every token is looked
//! at first, and what has passed is copied: without the tokens that stand for
//! nothing, which that crate doesn't expect everywhere, and without aliases
//! that don't lead to a path.
//!
//! Source: Devicetree Specification 0.4, chapter 5.

use alloc::vec::Vec;

/// Bytes of a tree's header.
const HEADER_BYTES: usize = 40;
/// Version from which on the header says how long each part is.
const VERSION: u32 = 17;
/// Deepest nesting of nodes that is read, and that `fdt` has room for.
const MAX_DEPTH: usize = 32;

/// Tokens of the structure.
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOTHING: u32 = 4;
const END: u32 = 9;

/// A node that has begun.
#[derive(Clone, Copy)]
struct Node {
    /// Properties may not follow.
    has_children: bool,
    /// Its properties are aliases.
    aliases: bool,
}

/// The tree in `blob`, sound and without gaps; `None` where it is damaged,
/// older than version 17, or larger than what heap there is.
pub(super) fn tree(blob: &[u8]) -> Option<Vec<u8>> {
    let field = |index: usize| word(blob, 4 * index);
    let part = |offset: u32, bytes: u32| blob.get(offset as usize..)?.get(..bytes as usize);
    let (version, compatible) = (field(5)?, field(6)?);
    if version < VERSION || compatible > VERSION {
        return None;
    }
    let structure = part(field(2)?, field(9)?)?;
    let strings = part(field(3)?, field(8)?)?;
    let reserved = reservations(blob.get(field(4)? as usize..)?)?;
    let most = HEADER_BYTES + reserved.len() + structure.len() + strings.len();
    let mut tree = Vec::new();
    tree.try_reserve_exact(most).ok()?;
    tree.extend(blob.get(..HEADER_BYTES)?);
    tree.extend(reserved);
    let begin = tree.len();
    walk(structure, strings, &mut tree)?;
    let end = tree.len();
    tree.extend(strings);
    for (index, value) in [
        (1, tree.len()),
        (2, begin),
        (3, end),
        (4, HEADER_BYTES),
        (9, end - begin),
    ] {
        let bytes = u32::try_from(value).ok()?.to_be_bytes();
        tree.get_mut(4 * index..)?
            .get_mut(..4)?
            .copy_from_slice(&bytes);
    }
    Some(tree)
}

/// The big-endian word at `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The text at the start of `bytes`, without the zero that ends it.
fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    core::str::from_utf8(bytes.get(..end)?).ok()
}

/// The entries of the list of reservations, with the one that ends it.
fn reservations(bytes: &[u8]) -> Option<&[u8]> {
    let (entries, _) = bytes.as_chunks::<16>();
    let last = entries.iter().position(|entry| *entry == [0; 16])?;
    bytes.get(..(last + 1) * 16)
}

/// Appends what `structure` holds to `tree`, which has room for it.
fn walk(structure: &[u8], strings: &[u8], tree: &mut Vec<u8>) -> Option<()> {
    let mut nodes = Vec::new();
    nodes.try_reserve_exact(MAX_DEPTH).ok()?;
    let (mut at, mut roots) = (0, 0);
    loop {
        let rest = structure.get(at..)?;
        let (bytes, keep) = match word(rest, 0)? {
            NOTHING => (4, false),
            BEGIN_NODE => {
                let name = text(rest.get(4..)?)?;
                roots += usize::from(nodes.is_empty());
                begin(&mut nodes, name)?;
                (4 + (name.len() + 1).next_multiple_of(4), true)
            }
            PROPERTY => property(rest, strings, nodes.last()?)?,
            END_NODE => {
                nodes.pop()?;
                (4, true)
            }
            END if nodes.is_empty() && roots == 1 => {
                tree.extend(rest.get(..4)?);
                return Some(());
            }
            _ => return None,
        };
        let token = rest.get(..bytes)?;
        if keep {
            tree.extend(token);
        }
        at += bytes;
    }
}

/// Begins a node called `name` within the last of `nodes`. The root alone
/// has no name.
fn begin(nodes: &mut Vec<Node>, name: &str) -> Option<()> {
    if nodes.is_empty() != name.is_empty() || nodes.len() == MAX_DEPTH {
        return None;
    }
    if let Some(parent) = nodes.last_mut() {
        parent.has_children = true;
    }
    nodes.push(Node {
        has_children: false,
        aliases: name.split('@').next() == Some("aliases"),
    });
    Some(())
}

/// Bytes of the property at the start of `rest`, and whether it is kept.
fn property(rest: &[u8], strings: &[u8], node: &Node) -> Option<(usize, bool)> {
    let (length, name) = (word(rest, 4)? as usize, word(rest, 8)? as usize);
    let name = text(strings.get(name..)?)?;
    let value = rest.get(12..)?.get(..length)?;
    let cells = matches!(name, "#address-cells" | "#size-cells");
    if node.has_children || cells && length < 4 {
        return None;
    }
    // Looked up again and again until it is found.
    let leads_nowhere = name.contains('/') || !value.starts_with(b"/");
    let bytes = 12 + length.next_multiple_of(4);
    Some((bytes, !(node.aliases && leads_nowhere)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::frame::Range;
    use crate::platform::fdt::read;
    use proptest::prelude::*;

    /// What QEMU 10.0 makes for `virt` with four CPUs, cut where it ends.
    const VIRT: &[u8] = include_bytes!("virt.dtb");
    /// Where its parts begin and end: reservations, structure, strings.
    const PARTS: [usize; 4] = [48, 64, 3684, 4061];

    /// `VIRT` with the word at `at` replaced.
    fn with_word(at: usize, value: u32) -> Vec<u8> {
        let mut tree = VIRT.to_vec();
        tree[at..at + 4].copy_from_slice(&value.to_be_bytes());
        tree
    }

    /// Offset in `VIRT` of the first token of this kind from `from` on.
    fn token(kind: u32, from: usize) -> usize {
        let mut words = (from..PARTS[2]).step_by(4);
        words.find(|&at| word(VIRT, at) == Some(kind)).unwrap()
    }

    #[test]
    fn a_sound_tree_stays_as_it_is() {
        let tree = tree(VIRT).unwrap();
        assert_eq!(tree[HEADER_BYTES..][..16], [0; 16]);
        assert_eq!(tree[HEADER_BYTES + 16..], VIRT[PARTS[1]..]);
        let machine = read(VIRT).unwrap();
        assert_eq!((machine.cpus.len(), machine.seed.len()), (4, 32));
        assert_eq!(machine.rtc, Some(0x100d_0100));
        assert_eq!(machine.ecam, [Range::new(0x2000_0000, 0x2800_0000)]);
    }

    #[test]
    fn what_stands_for_nothing_is_left_out() {
        // Between the properties of the root, where `fdt` ends at it.
        let second = token(PROPERTY, PARTS[1] + 12);
        let mut gaps = VIRT.to_vec();
        gaps.splice(second..second, [0, 0, 0, 4].repeat(3));
        for (field, more) in [(3, 12), (9, 12)] {
            let value = word(VIRT, 4 * field).unwrap() + more;
            gaps[4 * field..4 * field + 4].copy_from_slice(&value.to_be_bytes());
        }
        assert_eq!(tree(&gaps), tree(VIRT));
    }

    #[test]
    fn damage_is_refused() {
        let node = token(BEGIN_NODE, PARTS[1] + 8);
        let in_root = token(PROPERTY, PARTS[1]);
        for (what, tree) in [
            ("too old", with_word(20, 16)),
            ("too new", with_word(24, 18)),
            ("structure beyond the end", with_word(36, 4000)),
            ("structure too short", with_word(36, 3612)),
            ("strings beyond the end", with_word(32, 378)),
            ("reservations beyond the end", with_word(16, 4062)),
            ("reservations without an end", with_word(16, 4050)),
            ("a root with a name", with_word(PARTS[1] + 4, 0x6100_0000)),
            ("a node without a name", with_word(node + 4, 0)),
            ("a name that isn't text", with_word(node + 4, 0xff00_0000)),
            ("an unknown token", with_word(node, 7)),
            ("an end too many", with_word(node, END_NODE)),
            ("a property beyond the end", with_word(in_root + 4, 1 << 20)),
            ("a name beyond the strings", with_word(in_root + 8, 377)),
            ("#address-cells without a cell", with_word(in_root + 4, 0)),
        ] {
            assert_eq!(super::tree(&tree), None, "{what}");
            assert_eq!(read(&tree), None, "{what}");
        }
        for bytes in (0..PARTS[3]).filter(|bytes| *bytes < 64 || bytes % 7 == 0) {
            assert_eq!(super::tree(&VIRT[..bytes]), None, "{bytes} bytes");
        }
    }

    /// A tree of these tokens, whose one property name is "#size-cells".
    fn of_tokens(tokens: &[u32]) -> Option<Vec<u8>> {
        const NAME: &[u8] = b"#size-cells\0";
        let bytes = 4 * tokens.len() as u32;
        let header = [
            0xd00d_feed,
            0,
            56,
            56 + bytes,
            40,
            17,
            16,
            0,
            12,
            bytes,
            0,
            0,
            0,
            0,
        ];
        let words = header
            .iter()
            .chain(tokens)
            .flat_map(|word| word.to_be_bytes());
        tree(&words.chain(NAME.iter().copied()).collect::<Vec<u8>>())
    }

    #[test]
    fn each_token_has_its_place() {
        let cells = [PROPERTY, 4, 0, 2];
        let (root, child, ends) = ([BEGIN_NODE, 0], [BEGIN_NODE, 0x6100_0000], END_NODE);
        let sound = |tokens: &[&[u32]]| of_tokens(&tokens.concat()).is_some();
        assert!(sound(&[&root, &cells, &child, &cells, &[ends, ends, END]]));
        // A property after a node, too few of its bytes, two roots or none,
        // a root that doesn't end, a property of nothing.
        assert!(!sound(&[&root, &child, &[ends], &cells, &[ends, END]]));
        assert!(!sound(&[&root, &[PROPERTY, 3, 0, 2], &[ends, END]]));
        assert!(!sound(&[&root, &[ends], &root, &[ends, END]]));
        assert!(!sound(&[&[END]]) && !sound(&[&root, &[END]]));
        assert!(!sound(&[&root, &[ends], &cells, &[END]]));
    }

    /// A root with `inside`, and what `value` names as its console.
    fn root(inside: impl FnOnce(&mut vm_fdt::FdtWriter), console: &str) -> Vec<u8> {
        let mut writer = vm_fdt::FdtWriter::new().unwrap();
        let root = writer.begin_node("").unwrap();
        inside(&mut writer);
        let chosen = writer.begin_node("chosen").unwrap();
        writer.property_string("stdout-path", console).unwrap();
        writer.end_node(chosen).unwrap();
        writer.end_node(root).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn aliases_that_lead_to_themselves_have_an_end() {
        // No writer takes a name with a slash: it replaces the letter.
        for (name, value, first) in [("qa", "qa", b'q'), ("qa", "/a", b'/'), ("qa", "", b'q')] {
            let mut tree = root(
                |writer| {
                    let aliases = writer.begin_node("aliases").unwrap();
                    writer.property_string(name, value).unwrap();
                    writer.end_node(aliases).unwrap();
                },
                if first == b'/' { "/a" } else { name },
            );
            let strings = word(&tree, 12).unwrap() as usize;
            let names = tree[strings..].windows(3).position(|name| name == b"qa\0");
            tree[strings + names.unwrap()] = first;
            assert!(read(&tree).is_some(), "{name} = {value}");
        }
    }

    #[test]
    fn nodes_nest_so_deep_and_no_deeper() {
        for (depth, sound) in [(MAX_DEPTH - 1, true), (MAX_DEPTH, false)] {
            let tree = root(
                |writer| {
                    let begin = |n: usize| writer.begin_node(&format!("n{n}")).unwrap();
                    let nodes: Vec<_> = (0..depth).map(begin).collect();
                    for node in nodes.into_iter().rev() {
                        writer.end_node(node).unwrap();
                    }
                },
                "/",
            );
            assert_eq!(read(&tree).is_some(), sound, "{depth}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn no_damage_makes_the_reader_panic(
            flips in prop::collection::vec((0..VIRT.len(), any::<u8>()), 1..8),
            in_words in prop::collection::vec((0..VIRT.len() / 4, 0u32..12), 0..4),
        ) {
            let mut tree = VIRT.to_vec();
            for (at, byte) in flips {
                tree[at] = byte;
            }
            for (at, value) in in_words {
                tree[4 * at..4 * at + 4].copy_from_slice(&value.to_be_bytes());
            }
            let _ = read(&tree);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(
            mut tree in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            for (to, from) in tree.iter_mut().zip(&VIRT[..4]) {
                *to = *from;
            }
            let _ = read(&tree);
        }
    }
}
