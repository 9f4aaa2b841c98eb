// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/part_transfer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/encoding.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"
#include "trireme/launch/nodes/part_messages.h"
#include "trireme/net/address.h"
#include "trireme/net/connect_and_authenticate.h"
#include "trireme/net/frame.h"

namespace trireme::launch {
namespace {

constexpr Duration kPieceComes = std::chrono::seconds(10);
constexpr Duration kGuestLook = std::chrono::milliseconds(200);
constexpr size_t kMostGuests = 64;

/// Frames over a connection whose other end may fall silent at any byte.
class PartStream {
 public:
  PartStream(net::Socket& socket, net::Session& session) : socket_(socket), session_(session) {
    if (session.in) in_.expect_seals(std::move(*session.in));
  }
  void send(PartFrame type, std::string_view payload) {
    socket_.send_all(session_.seal(net::encode_frame(static_cast<uint16_t>(type), payload)),
                     Deadline::after(kPieceComes));
  }
  std::string receive(PartFrame type, const std::function<bool()>& ends) {
    for (auto deadline = Deadline::after(kPieceComes);;) {
      if (auto frame = in_.next(net::kMaxPayloadAfter)) {
        check<Corrupt>(frame->type == static_cast<uint16_t>(type),
                       "{} sent a frame of type {} where {} should come", socket_.peer(),
                       frame->type, static_cast<int>(type));
        return std::move(frame->payload);
      }
      check<Timeout>(!ends(), "it is not waited for any more");
      check<Timeout>(!deadline.expired(), "{} sends nothing", socket_.peer());
      if (!socket_.wait_readable(net::sooner(deadline, kGuestLook))) continue;
      const auto size = socket_.recv_now(bytes_.data(), bytes_.size());
      if (!size) continue;
      check<PeerLost>(*size > 0, "{} has closed the connection", socket_.peer());
      in_.feed({bytes_.data(), *size});
      deadline = Deadline::after(kPieceComes);
    }
  }

 private:
  net::Socket& socket_;
  net::Session& session_;
  net::FrameParser in_;
  std::string bytes_ = std::string(size_t{256} << 10, '\0');
};

uint64_t size_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

}  // namespace

PartServer::PartServer(net::Listener listener, net::Credentials credentials)
    : listener_(std::move(listener)), credentials_(std::move(credentials)) {
  thread_ = quiet_thread([this] { receive(); });
}

PartServer::~PartServer() {
  stop_ = true;
  thread_.join();
  for (Guest& guest : guests_) ::shutdown(guest.socket.fd(), SHUT_RDWR);
  for (Guest& guest : guests_) guest.thread.join();
}

void PartServer::offer(const std::string& name, const std::vector<Offer>& parts) {
  const std::lock_guard lock(mutex_);
  std::erase_if(parts_, [&](const Part& part) { return part.name == name; });
  for (const Offer& part : parts)
    parts_.push_back({name, part.save, part.rank,
                      std::make_shared<UniqueFd>(::fcntl(part.fd, F_DUPFD_CLOEXEC, 3))});
}

std::shared_ptr<UniqueFd> PartServer::find(const std::string& save, int64_t rank) {
  const std::lock_guard lock(mutex_);
  for (const Part& part : parts_)
    if (part.save == save && part.rank == rank) return part.memory;
  return nullptr;
}

void PartServer::receive() {
  while (!stop_) try {
      net::poll_until(listener_.fd(), POLLIN, Deadline::after(kGuestLook));
      forget_the_gone();
      auto socket = listener_.accept_now();
      if (!socket || guests_.size() >= kMostGuests) continue;  // who finds no room tries again
      Guest& guest = guests_.emplace_back();
      guest.socket = std::move(*socket);
      guest.thread = quiet_thread([this, &guest] { serve(guest); });
    } catch (const std::exception& error) {
      log_debug("nobody was let in to the parts of steps here: {}", error.what());
      ::poll(nullptr, 0, static_cast<int>(kGuestLook / std::chrono::milliseconds(1)));
    }
}

void PartServer::forget_the_gone() {
  for (auto guest = guests_.begin(); guest != guests_.end();)
    if (guest->gone) {
      guest->thread.join();
      guest = guests_.erase(guest);
    } else {
      ++guest;
    }
}

void PartServer::serve(Guest& guest) {
  try {
    give(guest.socket, guest.socket.peer());
  } catch (const std::exception& error) {
    log_debug("{} got no part of a step here: {}", guest.socket.peer(), error.what());
  }
  ::shutdown(guest.socket.fd(), SHUT_RDWR);
  guest.gone = true;
}

void PartServer::give(net::Socket& socket, const std::string& peer) {
  net::Session session =
      net::authenticate_as_server(socket, credentials_, Deadline::after(net::kHandshakeLimit));
  PartStream stream(socket, session);
  const auto wanted =
      decode<PartWanted>(stream.receive(PartFrame::wanted, [this] { return bool(stop_); }));
  const std::shared_ptr<UniqueFd> memory = find(wanted.save, wanted.rank);
  if (!memory || !*memory)
    return stream.send(PartFrame::head, encode(PartHead{0, "it holds none of that save"}));
  const uint64_t bytes = size_of(memory->get());
  stream.send(PartFrame::head, encode(PartHead{bytes, ""}));
  Checksum sum;
  std::string piece;
  for (uint64_t at = 0; at < bytes; at += piece.size()) {
    check<Error>(!stop_, "this launcher ends");
    piece.resize(std::min<uint64_t>(kPartPiece, bytes - at));
    const auto size = static_cast<ssize_t>(piece.size());
    if (::pread(memory->get(), piece.data(), piece.size(), static_cast<off_t>(at)) != size)
      fail<ResourceError>("cannot read a snapshot: {}", errno_text());
    sum.add(piece.data(), piece.size());
    stream.send(PartFrame::bytes, piece);
  }
  stream.send(PartFrame::end, encode(PartEnd{sum.number()}));
  log_debug("{} got what rank {} had of {}", peer, wanted.rank, wanted.save);
}

UniqueFd part_memory(uint64_t bytes) {
  UniqueFd fd(::memfd_create("trireme-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    fail<ResourceError>("no memory for {} bytes of a step: {}", bytes, errno_text());
  return fd;
}

UniqueFd fetch_part(const std::string& address, const net::Credentials& credentials,
                    const std::string& save, int64_t rank, uint64_t bytes,
                    const std::function<bool()>& ends) {
  auto entry = detail::connect_and_authenticate(net::Endpoint::tcp(net::parse_address(address)),
                                                credentials, Deadline::after(net::kHandshakeLimit));
  check<UsageError>(!entry.refused, "{}", entry.why);
  check<PeerLost>(entry.socket.has_value(), "{}: {}", address, entry.why);
  PartStream stream(*entry.socket, entry.session);
  stream.send(PartFrame::wanted, encode(PartWanted{save, rank}));
  const auto head = decode<PartHead>(stream.receive(PartFrame::head, ends));
  check<ResourceError>(head.refusal.empty(), "{}: {}", address, head.refusal);
  check<Corrupt>(head.bytes == bytes, "{} has {} bytes of it, and said {}", address, head.bytes,
                 bytes);
  UniqueFd memory = part_memory(bytes);
  Checksum sum;
  for (uint64_t at = 0; at < bytes;) {
    check<Timeout>(!ends(), "it is not waited for any more");
    const std::string piece = stream.receive(PartFrame::bytes, ends);
    check<Corrupt>(!piece.empty() && piece.size() <= bytes - at, "{} sent {} bytes at {} of {}",
                   address, piece.size(), at, bytes);
    const auto size = static_cast<ssize_t>(piece.size());
    if (::pwrite(memory.get(), piece.data(), piece.size(), static_cast<off_t>(at)) != size)
      fail<ResourceError>("cannot keep a part of a step: {}", errno_text());
    sum.add(piece.data(), piece.size());
    at += piece.size();
  }
  const auto end = decode<PartEnd>(stream.receive(PartFrame::end, ends));
  check<Corrupt>(end.sum == sum.number(), "what {} sent does not fit its checksum", address);
  if (!seal_snapshot(memory.get())) fail<ResourceError>("cannot seal memory: {}", errno_text());
  return memory;
}

}  // namespace trireme::launch
