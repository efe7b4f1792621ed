//! The folders and files of a channel, as its objects' paths make them.

use std::path::{Component, Path};

use indexmap::IndexMap;

use crate::instance::objects::{ObjectError, inside};
use crate::plan::ObjectPlan;

/// The number of the channel's own folder.
pub(super) const ROOT: usize = 0;

/// Folders and files by their numbers.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

/// A folder or a file.
#[derive(Debug)]
pub(super) enum Node {
    Folder {
        /// The number of the folder that it is in; its own for the channel's.
        parent: usize,
        /// The numbers of what is in it.
        entries: IndexMap<String, usize>,
    },
    /// The number of its object.
    File(usize),
}

impl Tree {
    /// Puts each object into its place.
    ///
    /// # Errors
    /// A path leads out of the channel's folder, or two objects want the same place.
    pub(super) fn of(objects: &[ObjectPlan]) -> Result<Self, ObjectError> {
        let mut tree = Self { nodes: vec![Node::Folder { parent: ROOT, entries: IndexMap::new() }] };
        for (number, object) in objects.iter().enumerate() {
            let clash = || ObjectError::Clash { relative: object.relative.clone() };
            let mut folder = ROOT;
            let mut names = names(inside(&object.relative)?).peekable();
            while let Some(name) = names.next() {
                folder = match names.peek() {
                    Some(_) => tree.folder(folder, name).ok_or_else(clash)?,
                    None => tree.add(folder, name, Node::File(number)).ok_or_else(clash)?,
                };
            }
        }
        Ok(tree)
    }

    /// The folder of a name in a folder, which is made if it is not there; none if a file has the name.
    fn folder(&mut self, parent: usize, name: &str) -> Option<usize> {
        match self.find(parent, name) {
            Some(found) => matches!(self.nodes[found], Node::Folder { .. }).then_some(found),
            None => self.add(parent, name, Node::Folder { parent, entries: IndexMap::new() }),
        }
    }

    /// Gives the number of the new node; none if the name is taken.
    fn add(&mut self, parent: usize, name: &str, node: Node) -> Option<usize> {
        let number = self.nodes.len();
        let Some(Node::Folder { entries, .. }) = self.nodes.get_mut(parent) else { return None };
        if entries.contains_key(name) {
            return None;
        }
        entries.insert(name.to_owned(), number);
        self.nodes.push(node);
        Some(number)
    }

    /// What has a number.
    pub(super) fn get(&self, number: usize) -> Option<&Node> {
        self.nodes.get(number)
    }

    /// The number of what has a name in a folder.
    pub(super) fn find(&self, folder: usize, name: &str) -> Option<usize> {
        match self.nodes.get(folder)? {
            Node::Folder { entries, .. } => entries.get(name).copied(),
            Node::File(_) => None,
        }
    }

    /// Folders and files, with the channel's own folder.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

fn names(path: &Path) -> impl Iterator<Item = &str> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> Result<Tree, ObjectError> {
        let object = |path: &&str| ObjectPlan {
            source: std::path::PathBuf::from("/nowhere").into(),
            relative: (*path).to_owned(),
            size: 1,
        };
        Tree::of(&paths.iter().map(object).collect::<Vec<_>>())
    }

    fn walk(tree: &Tree, path: &str) -> Option<usize> {
        let number = path.split('/').try_fold(ROOT, |folder, name| tree.find(folder, name))?;
        match tree.get(number)? {
            Node::File(object) => Some(*object),
            Node::Folder { .. } => None,
        }
    }

    #[test]
    fn each_object_is_at_its_path() {
        let paths = ["b", "a/x", "a/y/z", "c/x"];
        let tree = tree(&paths).unwrap();
        for (number, path) in paths.iter().enumerate() {
            assert_eq!(walk(&tree, path), Some(number), "{path}");
        }
        assert_eq!(walk(&tree, "a"), None);
        assert_eq!(walk(&tree, "a/none"), None);
        assert_eq!(walk(&tree, "b/x"), None);
        assert_eq!(tree.len(), 8);
    }

    #[test]
    fn two_objects_in_one_place_are_refused() {
        for paths in [["a", "a"], ["a", "a/b"], ["a/b", "a"]] {
            assert!(matches!(tree(&paths), Err(ObjectError::Clash { .. })), "{paths:?}");
        }
        for path in ["../a", "/a", "a/../b", ""] {
            assert!(matches!(tree(&[path]), Err(ObjectError::Outside { .. })), "{path:?}");
        }
    }
}
