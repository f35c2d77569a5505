//! `driver` and `worker`: which processes drive runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use segue_core::diagnostic::{Code, Diagnostic};
use segue_core::document::Node;
use segue_core::duration::parse_duration;
use segue_core::source::Span;

use super::Config;
use super::read::ConfigReader;

/// How long a process owns its runs after its last heartbeat: shorter, and a slow database lets runs change
/// hands; longer, and the runs of a process that died wait.
const LEASE_MIN: Duration = Duration::from_secs(3);
const LEASE_MAX: Duration = Duration::from_mins(10);

/// Who decides which process drives a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DriverConfig {
    /// Nobody: processes claim runs from the store.
    #[default]
    Local,
    /// Restate, which asks workers to drive them.
    Restate(RestateConfig),
}

/// Where Restate is, and where it finds this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestateConfig {
    /// Where runs are sent.
    pub ingress: Arc<str>,
    /// Where workers register.
    pub admin: Arc<str>,
    /// The address of the workers, as Restate reaches them.
    pub advertise: Arc<str>,
    /// Where a worker listens, if not on the port of `advertise`.
    pub listen: Option<SocketAddr>,
    /// Where `driver` is in the configuration.
    pub(super) span: Span,
}

/// How a process takes part in driving runs of a shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// How long it owns its runs after its last heartbeat.
    pub lease: Duration,
    /// How many runs it drives at once.
    pub runs: usize,
}

impl Default for WorkerConfig {
    fn default() -> WorkerConfig {
        WorkerConfig { lease: Duration::from_secs(10), runs: 256 }
    }
}

impl Config {
    /// What is wrong with the driver for the store in use, which the command line may have changed.
    pub(crate) fn driver_finding(&self) -> Option<Diagnostic> {
        let DriverConfig::Restate(restate) = &self.driver else { return None };
        if self.store.is_shared() {
            return None;
        }
        let message = "`driver: restate` needs a store that several processes share";
        let finding = Diagnostic::error(Code::UnsharedStore, message, restate.span);
        Some(finding.help("set `store: postgres://…`, or remove `driver`"))
    }
}

impl ConfigReader<'_> {
    pub(super) fn driver(&mut self, node: &Node) -> DriverConfig {
        match node.as_str() {
            Some(word) if &**word == "local" => return DriverConfig::Local,
            Some(word) => {
                let message = format!("`driver` is `local` or `restate: {{ … }}`, not `{word}`");
                self.error(node.span, message);
                return DriverConfig::Local;
            }
            None => {}
        }
        if !self.keys(node, &["restate"], "`driver`") {
            return DriverConfig::Local;
        }
        let Some(restate) = node.get("restate") else { return DriverConfig::Local };
        if !self.keys(restate, &["ingress", "admin", "advertise", "listen"], "`restate`") {
            return DriverConfig::Local;
        }
        let (ingress, admin) = (self.address(restate, "ingress"), self.address(restate, "admin"));
        let (Some(ingress), Some(admin), Some(advertise)) =
            (ingress, admin, self.address(restate, "advertise"))
        else {
            return DriverConfig::Local;
        };
        let listen = restate.get("listen").and_then(|written| self.listen_address(written));
        DriverConfig::Restate(RestateConfig { ingress, admin, advertise, listen, span: node.span })
    }

    fn listen_address(&mut self, written: &Node) -> Option<SocketAddr> {
        let text = self.text(written, "`listen`")?;
        let at = text.parse().ok();
        if at.is_none() {
            let message = "`listen` is an IP address and a port, such as `0.0.0.0:9080`";
            self.error(written.span, message);
        }
        at
    }

    fn address(&mut self, node: &Node, key: &str) -> Option<Arc<str>> {
        let Some(written) = node.get(key) else {
            self.error(node.span, format!("`restate` needs `{key}`, an address"));
            return None;
        };
        let text = self.text(written, &format!("`{key}`"))?;
        if text.starts_with("http://") || text.starts_with("https://") {
            return Some(text.trim_end_matches('/').into());
        }
        let message = format!("`{key}` is an address such as `http://restate:8080`");
        self.error(written.span, message);
        None
    }

    pub(super) fn worker(&mut self, node: &Node) -> WorkerConfig {
        let mut worker = WorkerConfig::default();
        if !self.keys(node, &["lease", "runs"], "`worker`") {
            return worker;
        }
        if let Some(written) = node.get("lease") {
            let lease = self.text(written, "`lease`").and_then(|text| parse_duration(&text));
            let lease = lease.map(Duration::from_millis);
            match lease.filter(|lease| (LEASE_MIN..=LEASE_MAX).contains(lease)) {
                Some(lease) => worker.lease = lease,
                None => self.error(written.span, "`lease` is a duration from `3s` to `10m`"),
            }
        }
        if let Some(written) = node.get("runs") {
            let runs = written.to_value().as_u64().and_then(|runs| usize::try_from(runs).ok());
            match runs.filter(|runs| *runs > 0) {
                Some(runs) => worker.runs = runs,
                None => {
                    let message = "`runs` is a whole number from 1: how many runs a process drives \
                                   at once";
                    self.error(written.span, message);
                }
            }
        }
        worker
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::findings;
    use crate::config::read::read;
    use segue_core::source::Source;

    fn read_text(text: &str) -> Config {
        let source = Source::new("segue.yaml", text);
        let (config, findings) = read(&source, Path::new("segue.yaml"), &|_| None, &|_| true);
        assert!(findings.is_empty(), "{findings:?}");
        config
    }

    const RESTATE: &str = "driver: { restate: { ingress: 'http://r:8080/', admin: http://r:9070, \
                           advertise: http://w:9080, listen: '127.0.0.1:9081' } }\n";

    #[test]
    fn sections_are_read() {
        let config = read_text("worker: { lease: 3s, runs: 8 }\ndriver: local\n");
        assert_eq!(config.worker, WorkerConfig { lease: Duration::from_secs(3), runs: 8 });
        assert_eq!(config.driver, DriverConfig::Local);
        assert_eq!(read_text("limits: {}\n").worker, WorkerConfig::default());
        let DriverConfig::Restate(restate) = read_text(RESTATE).driver else { panic!("restate") };
        assert_eq!(&*restate.ingress, "http://r:8080");
        assert_eq!(restate.listen.map(|at| at.port()), Some(9081));
    }

    #[test]
    fn mistakes_are_found() {
        for (text, message) in [
            ("worker: { lease: 1s }", "`lease` is a duration from `3s` to `10m`"),
            ("worker: { lease: 11m }", "`lease` is a duration from `3s` to `10m`"),
            ("worker: { runs: 0 }", "`runs` is a whole number from 1"),
            ("worker: { run: 1 }", "`worker` has no field `run`"),
            ("driver: temporal", "`driver` is `local` or `restate: { … }`, not `temporal`"),
            (
                "driver: { restate: { ingress: http://r:1, admin: http://r:2 } }",
                "needs `advertise`",
            ),
            (
                "driver: { restate: { ingress: r:1, admin: http://r:2, advertise: http://w:3 } }",
                "`ingress` is an address",
            ),
            (
                "driver: { restate: { ingress: http://r:1, admin: http://r:2, advertise: http://w:3, \
                 listen: w:3 } }",
                "`listen` is an IP address and a port",
            ),
        ] {
            let (_, found) = findings(Path::new("segue.yaml"), text);
            assert!(found.iter().any(|it| it.message.contains(message)), "{text}: {found:?}");
        }
    }

    /// The store in use decides, also one of the command line.
    #[test]
    fn restate_needs_a_shared_store() {
        let config = read_text(RESTATE);
        let finding = config.driver_finding().expect("the default store is a file");
        assert_eq!(finding.code, Code::UnsharedStore);
        assert!(read_text("driver: local\n").driver_finding().is_none());
    }
}
