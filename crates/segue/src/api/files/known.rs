//! What files hold, by path: a list reads only the files that changed since the one before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use segue_core::compile::{compositions_in, read_header};
use segue_core::limits::Limits;
use segue_core::source::Source;
use segue_runtime::tools::builtin::{DocumentFolder, DocumentPath, DocumentStamp, DocumentText};

/// Files that were written so recently are read again: a second change in the same moment may leave their
/// stamp as it is.
const SETTLED: Duration = Duration::from_secs(2);

/// What a file holds, as far as lists show it.
#[derive(Debug)]
pub(super) struct KnownFile {
    pub(super) hash: String,
    /// The name of each composition in it; a document without a name has none.
    pub(super) compositions: Vec<Option<Arc<str>>>,
}

impl KnownFile {
    pub(super) fn of(document: &DocumentText, limits: &Limits) -> KnownFile {
        let text = document.text.as_str();
        let listed = compositions_in(&Source::new("file", text), limits).compositions;
        let name = |source: &Source| {
            let name = read_header(source, limits)?.name;
            Some(name).filter(|name| !name.is_empty())
        };
        let compositions = listed.iter().map(|listed| name(&listed.source)).collect();
        KnownFile { hash: document.hash.clone(), compositions }
    }

    /// The name of its one composition.
    pub(super) fn only(&self) -> Option<Arc<str>> {
        match &*self.compositions {
            [only] => only.clone(),
            _ => None,
        }
    }
}

/// The files that a list has read, each as it was then.
#[derive(Default)]
pub struct KnownFiles(Mutex<BTreeMap<DocumentPath, (DocumentStamp, Arc<KnownFile>)>>);

impl KnownFiles {
    /// What a file holds; it is read if it has another stamp than before. `None` if it cannot be read.
    pub(super) fn get(
        &self,
        folder: &DocumentFolder,
        path: &DocumentPath,
        stamp: DocumentStamp,
        limits: &Limits,
    ) -> Option<Arc<KnownFile>> {
        self.get_or_read(path, stamp, || Some(KnownFile::of(&folder.read(path).ok()?, limits)))
    }

    fn get_or_read(
        &self,
        path: &DocumentPath,
        stamp: DocumentStamp,
        read: impl FnOnce() -> Option<KnownFile>,
    ) -> Option<Arc<KnownFile>> {
        let known = self.0.lock().get(path).cloned();
        if let Some((_, file)) = known.filter(|(known, _)| *known == stamp) {
            return Some(file);
        }
        let file = Arc::new(read()?);
        let age = stamp.modified.and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age >= SETTLED) {
            self.0.lock().insert(path.clone(), (stamp, file.clone()));
        }
        Some(file)
    }

    /// Forgets the files that are not among these.
    pub(super) fn retain(&self, paths: &[DocumentPath]) {
        self.0.lock().retain(|path, _| paths.binary_search(path).is_ok());
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;
    use segue_runtime::tools::builtin::ProtectedFiles;

    /// How many of the calls so far have read the file.
    struct Reads<'a> {
        known: &'a KnownFiles,
        folder: DocumentFolder,
        path: DocumentPath,
        count: usize,
    }

    impl Reads<'_> {
        fn next(&mut self) -> usize {
            let stamp = self.folder.stamp(&self.path).expect("the file is there");
            let document = self.folder.read(&self.path).expect("the file can be read");
            let file = self.known.get_or_read(&self.path, stamp, || {
                self.count += 1;
                Some(KnownFile::of(&document, &Limits::default()))
            });
            assert_eq!(file.expect("the file is known").hash, document.hash);
            self.count
        }
    }

    #[test]
    fn a_file_is_read_once_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        let write = |text: &str, ago: u64| {
            fs::write(&file, text).unwrap();
            let at = SystemTime::now() - Duration::from_secs(ago);
            fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        };
        let known = KnownFiles::default();
        let documents =
            DocumentFolder::new(folder.path().to_owned(), ProtectedFiles::default(), 1_000);
        let path = DocumentPath::parse("a.yaml").unwrap();
        let mut reads = Reads { known: &known, folder: documents, path, count: 0 };
        write("name: a", 60);
        assert_eq!((reads.next(), reads.next(), reads.next()), (1, 1, 1));
        write("name: bb", 60);
        assert_eq!((reads.next(), reads.next()), (2, 2), "another size");
        write("name: cc", 30);
        assert_eq!((reads.next(), reads.next()), (3, 3), "another time");
        fs::remove_file(&file).unwrap();
        write("name: dd", 30);
        assert_eq!((reads.next(), reads.next()), (4, 4), "another file");
        write("name: ee", 0);
        assert_eq!((reads.next(), reads.next()), (5, 6), "it may change again at this moment");
        known.retain(&[]);
        assert!(known.0.lock().is_empty());
    }
}
