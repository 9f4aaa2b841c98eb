// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/flags/text.h"

namespace trireme::launch {
namespace {

constexpr size_t kLongestLine = 64 << 10;
constexpr size_t kPipeChunk =
    4096;  // PIPE_BUF: after POLLOUT a pipe takes this much without blocking

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

const pollfd* find(const std::vector<pollfd>& fds, int fd, short events) {
  for (const pollfd& entry : fds)
    if (entry.fd == fd && (entry.events & events)) return &entry;
  return nullptr;
}

}  // namespace

void Console::add(std::string_view bytes) {
  if (!broken_) waiting_ += bytes;
}

void Console::write_some() {
  ssize_t n = ::write(fd_, waiting_.data(), std::min(waiting_.size(), kPipeChunk));
  if (n >= 0) {
    waiting_.erase(0, static_cast<size_t>(n));
  } else if (errno != EINTR && errno != EAGAIN) {
    broken_ = true;  // nobody reads any more; the files go on
    waiting_.clear();
  }
}

std::string line_prefix(std::string text, const Role& role, int local_rank, int rank) {
  replace_all(text, "${role_name}", role.name);
  replace_all(text, "${role_rank}", std::to_string(role.rank));
  replace_all(text, "${local_rank}", std::to_string(local_rank));
  replace_all(text, "${rank}", std::to_string(rank));
  return text;
}

std::string default_prefix(const RunOptions& options) {
  return options.roles.empty() ? "[${role_name}${local_rank}]:" : "[${role_name}${role_rank}]:";
}

Output::Output(const RunOptions& options, std::string folder, const std::string& prefix_template,
               int first_rank)
    : options_(options),
      folder_(std::move(folder)),
      prefix_template_(prefix_template),
      first_rank_(first_rank) {}

Output::Ends Output::open(int local_rank) {
  return {open_stream(local_rank, StreamSelection::kStdout),
          open_stream(local_rank, StreamSelection::kStderr)};
}

UniqueFd Output::open_stream(int local_rank, int which) {
  const auto& filter = options_.local_ranks_filter;
  bool shown =
      filter.empty() || std::find(filter.begin(), filter.end(), local_rank) != filter.end();
  bool tee = options_.tee.at(local_rank) & which;
  bool to_file = tee || (options_.redirects.at(local_rank) & which);
  if (!to_file) return UniqueFd(shown ? -1 : ::open("/dev/null", O_WRONLY | O_CLOEXEC));

  std::string path = folder_ + "/" + std::to_string(local_rank);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  path += which == StreamSelection::kStdout ? "/stdout.log" : "/stderr.log";
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  check<ResourceError>(static_cast<bool>(file), "cannot write the log {}: {}", path, errno_text());
  if (!tee || !shown) return file;

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail<ResourceError>("cannot make a pipe: {}", errno_text());
  UniqueFd in(ends[0]), out(ends[1]);
  ::fcntl(in.get(), F_SETFL, O_NONBLOCK);  // the reading end alone
  auto stream = std::make_unique<Stream>();
  stream->pipe = std::move(in);
  stream->file = std::move(file);
  stream->path = path;
  const int rank = first_rank_ + local_rank;
  const Role role =
      options_.roles.empty() ? Role{options_.role, rank} : role_of(options_.roles, rank);
  stream->prefix = line_prefix(prefix_template_, role, local_rank, rank);
  stream->console = &consoles_[which == StreamSelection::kStdout ? 0 : 1];
  streams_.push_back(std::move(stream));
  return out;
}

void Output::add_to(std::vector<pollfd>& fds) const {
  for (const auto& stream : streams_)
    if (stream->pipe && stream->console->has_room()) fds.push_back({stream->pipe.get(), POLLIN, 0});
  for (const Console& console : consoles_)
    if (!console.is_empty()) fds.push_back({console.fd(), POLLOUT, 0});
}

void Output::serve(const std::vector<pollfd>& fds) {
  for (auto& stream : streams_) {
    if (!stream->pipe) continue;
    auto entry = find(fds, stream->pipe.get(), POLLIN);
    if (entry && entry->revents) read_some(*stream);
  }
  for (Console& console : consoles_) {
    auto entry = find(fds, console.fd(), POLLOUT);
    if (entry && entry->revents && !console.is_empty()) console.write_some();
  }
}

void Output::read_some(Stream& stream) {
  char buffer[1 << 14];
  ssize_t n = ::read(stream.pipe.get(), buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    if (!stream.line.empty()) end_line(stream);
    stream.pipe.reset();
    return;
  }
  std::string_view bytes(buffer, static_cast<size_t>(n));
  if (stream.file && !write_all(stream.file.get(), bytes)) {
    log_error("cannot write the log {}: {}; output to the console continues", stream.path,
              errno_text());
    stream.file.reset();
  }
  while (!bytes.empty()) {
    auto newline = bytes.find('\n');
    stream.line += bytes.substr(0, newline);
    bytes.remove_prefix(newline == std::string_view::npos ? bytes.size() : newline + 1);
    if (newline != std::string_view::npos || stream.line.size() >= kLongestLine) end_line(stream);
  }
}

void Output::end_line(Stream& stream) {
  stream.console->add(stream.prefix + stream.line + "\n");
  stream.line.clear();
}

void Output::finish(SignalInbox& inbox) {
  while (true) {
    for (auto& stream : streams_) {
      if (!stream->pipe || !stream->console->has_room()) continue;
      pollfd ready{stream->pipe.get(), POLLIN, 0};
      if (::poll(&ready, 1, 0) > 0) {
        read_some(*stream);
      } else {  // empty: somebody who outlived its worker holds the other end
        if (!stream->line.empty()) end_line(*stream);
        stream->pipe.reset();
      }
    }
    std::vector<pollfd> fds;
    bool reading =
        std::any_of(streams_.begin(), streams_.end(), [](auto& s) { return bool(s->pipe); });
    for (const Console& console : consoles_)
      if (!console.is_empty()) fds.push_back({console.fd(), POLLOUT, 0});
    if (fds.empty() && !reading) return;
    if (fds.empty()) continue;
    fds.push_back({inbox.fd(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), reading ? 0 : -1);
    for (int n : inbox.take())
      if (n != SIGCHLD) return;
    fds.pop_back();
    serve(fds);
  }
}

}  // namespace trireme::launch
