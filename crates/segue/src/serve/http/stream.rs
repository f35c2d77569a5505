//! A connection whose other end has to read: one that takes nothing for too long is given up.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The connection.
pub(super) struct Impatient<S> {
    inner: S,
    patience: Duration,
    /// Runs while the other end takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    pub(super) fn new(inner: S, patience: Duration) -> Impatient<S> {
        Impatient { inner, patience, stalled: None }
    }

    /// What came of writing; an error when nothing has for too long.
    fn judge<T>(&mut self, cx: &mut Context<'_>, came: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if came.is_ready() {
            self.stalled = None;
            return came;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.judge(cx, came)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.judge(cx, came)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let came = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, came)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let came = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge(cx, came)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Who reads slowly is served to the end; who reads nothing is given up.
    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_given_up() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Impatient::new(near, Duration::from_secs(30));
        let writes = async { near.write_all(&[7; 48]).await.map(|()| near) };
        let reads = async {
            let mut some = [0; 16];
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_secs(29)).await;
                far.read_exact(&mut some).await.unwrap();
            }
            far
        };
        let (near, _far) = tokio::join!(writes, reads);
        let stalled = near.unwrap().write_all(&[7; 48]).await;
        assert_eq!(stalled.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
