//! Exported pages over a Unix socket: file descriptors are passed to the process at the other end.

use super::pages::{ExportedPage, ExportedPages};
use crate::memory::PageHandle;
use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The first eight bytes of a message.
const MAGIC: u64 = u64::from_le_bytes(*b"orlop/pg");

/// The descriptors that Linux passes in one message (`SCM_MAX_FD`).
const MAX_DESCRIPTORS: usize = 253;

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl ExportedPages {
    /// Sends the export to the process at the other end of a socket, which calls [`ExportedPages::receive`].
    /// The descriptors here stay open until `self` is dropped.
    ///
    /// After an error a part may have been sent: the socket is not to be used for another export.
    ///
    /// # Errors
    ///
    /// Failures of the socket; [`io::ErrorKind::InvalidInput`] for fabric handles: send
    /// [`ExportedPages::to_bytes`].
    pub fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let descriptors: Option<Vec<&OwnedFd>> = self.pages.iter().map(ExportedPage::descriptor).collect();
        let descriptors = descriptors.ok_or(io::ErrorKind::InvalidInput)?;
        let sizes = self.pages.iter().map(|page| page.bytes);
        let head = [MAGIC, self.offset, self.bytes, self.pages.len() as u64];
        let numbers: Vec<u8> = head.into_iter().chain(sizes).flat_map(u64::to_le_bytes).collect();
        (&*socket).write_all(&numbers)?;
        descriptors.chunks(MAX_DESCRIPTORS).try_for_each(|some| send_descriptors(socket, some))
    }

    /// Receives an export that another process sends with [`ExportedPages::send`].
    ///
    /// After an error a part may have been received: the socket is not to be used for another export.
    ///
    /// # Errors
    ///
    /// Failures of the socket; [`io::ErrorKind::InvalidData`] for anything that is no export, and if this
    /// process may not open as many descriptors.
    pub fn receive(socket: &UnixStream) -> io::Result<Self> {
        let [magic, offset, bytes, count] =
            [read_number(socket)?, read_number(socket)?, read_number(socket)?, read_number(socket)?];
        if magic != MAGIC || count == 0 {
            return Err(invalid("no exported pages"));
        }
        // The count is not trusted: nothing is reserved for it.
        let sizes = (0..count).map(|_| read_number(socket)).collect::<io::Result<Vec<u64>>>()?;
        let mut descriptors = Vec::new();
        for some in sizes.chunks(MAX_DESCRIPTORS) {
            descriptors.extend(receive_descriptors(socket, some.len())?);
        }
        let page =
            |(bytes, descriptor)| ExportedPage { bytes, handle: PageHandle::FileDescriptor(descriptor) };
        Ok(Self { offset, bytes, pages: sizes.into_iter().zip(descriptors).map(page).collect() })
    }
}

impl ExportedPage {
    fn descriptor(&self) -> Option<&OwnedFd> {
        match &self.handle {
            PageHandle::FileDescriptor(descriptor) => Some(descriptor),
            PageHandle::Fabric(_) => None,
        }
    }
}

fn read_number(mut socket: &UnixStream) -> io::Result<u64> {
    let mut number = [0; 8];
    socket.read_exact(&mut number)?;
    Ok(u64::from_le_bytes(number))
}

/// Sends descriptors with one byte, which a message must have.
fn send_descriptors(socket: &UnixStream, descriptors: &[&OwnedFd]) -> io::Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL))? {
        1 => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives `count` descriptors. All that came are closed if they are not as many.
fn receive_descriptors(socket: &UnixStream, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let received = retry_on_intr(|| recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() != count {
        return Err(invalid("descriptors are missing: this process may not open as many"));
    }
    Ok(descriptors)
}
