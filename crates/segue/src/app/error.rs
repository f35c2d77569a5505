//! Why there is no engine, or no document: a message and what to do about it.

use crate::config::ConfigError;
use crate::print::{TerminalStyle, display_path, print_error, print_status, render};

/// Why there is no engine, or no document.
#[derive(Debug)]
pub(crate) enum AppError {
    /// The configuration cannot be used.
    Config(ConfigError),
    /// Anything else.
    Other {
        /// What is wrong.
        message: String,
        /// What to do about it.
        help: Option<String>,
    },
}

impl AppError {
    pub(crate) fn new(message: impl Into<String>, help: Option<String>) -> AppError {
        AppError::Other { message: message.into(), help }
    }

    /// What is wrong, in one line.
    pub(crate) fn message(&self) -> String {
        match self {
            AppError::Config(_) => "the configuration cannot be used".to_owned(),
            AppError::Other { message, .. } => message.clone(),
        }
    }

    /// What to do about it.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            AppError::Config(_) => None,
            AppError::Other { help, .. } => help.clone(),
        }
    }

    /// Prints what is wrong to standard error.
    pub(crate) fn print(&self) {
        match self {
            AppError::Config(ConfigError::Unreadable { file, reason }) => {
                print_error(&format!("cannot read `{}`: {reason}", display_path(file)), None);
            }
            AppError::Config(ConfigError::Wrong { source, diagnostics }) => {
                let style = TerminalStyle::of_stderr();
                diagnostics.iter().for_each(|it| print_status(&render(it, source, style)));
            }
            AppError::Other { message, help } => print_error(message, help.as_deref()),
        }
    }
}

impl From<ConfigError> for AppError {
    fn from(error: ConfigError) -> AppError {
        AppError::Config(error)
    }
}

impl From<String> for AppError {
    fn from(message: String) -> AppError {
        AppError::new(message, None)
    }
}
