// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/neighbour_copies.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/encoding.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/log.h"
#include "trireme/base/output_file.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"
#include "trireme/checkpoint/steps/snapshot/held_snapshot.h"
#include "trireme/comm/local/host/memory_room.h"
#include "trireme/launch/nodes/hear_all.h"
#include "trireme/launch/nodes/part_messages.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/net/address.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

constexpr Duration kNewSaveLook = milliseconds(200);
constexpr Duration kSaveIsMade = std::chrono::seconds(10);  // by the other ranks, at the same step

uint64_t bytes_in(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

void check_room(uint64_t bytes) {
  const local::Room room = local::memory_room();
  check<ResourceError>(bytes <= room.bytes / 2,
                       "{} bytes do not fit into half of the {} bytes of memory that are left",
                       bytes, room.bytes);
}

}  // namespace

NeighbourCopies::NeighbourCopies(PartServer& server, std::string host, net::Credentials credentials,
                                 std::unique_ptr<Store> table, Place place)
    : server_(server),
      host_(std::move(host)),
      credentials_(std::move(credentials)),
      table_(std::move(table)),
      place_(std::move(place)) {
  table_->set_answer_limit(patience::kStoreAnswers);  // take() waits for a call under way
  thread_ = quiet_thread([this] { run(); });
}

NeighbourCopies::~NeighbourCopies() { take(); }

void NeighbourCopies::see(const SnapshotHolder& holder) {
  if (holder.changes() == changes_) return;
  changes_ = holder.changes();
  std::vector<std::shared_ptr<Seen>> now;
  for (HandedSnapshot& memory : holder.copies())
    now.push_back(std::make_shared<Seen>(Seen{std::move(memory), "", {}}));
  const std::lock_guard lock(mutex_);
  seen_ = std::move(now);
}

std::vector<HandedSnapshot> NeighbourCopies::take() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  server_.offer("copies", {});
  std::vector<HandedSnapshot> all;
  for (auto* list : {&whole_.own, &whole_.others, &under_way_.own, &under_way_.others}) {
    for (HandedSnapshot& memory : *list) all.push_back(std::move(memory));
    list->clear();
  }
  return all;
}

void NeighbourCopies::run() {
  work_in_background();
  std::string copied;
  bool said = false;
  try {
    HearAll names(*table_, "save", place_.node, static_cast<int>(place_.workers_of_nodes.size()));
    while (!stop_) {
      // Node 0 names it, when it has one.
      std::string save;
      while (place_.node == 0 && !stop_ && ((save = newest_save()).empty() || save == copied))
        ::poll(nullptr, 0, static_cast<int>(kNewSaveLook / milliseconds(1)));
      if (stop_) return;
      const auto all = names.round(save, Deadline::never(), [this] { return ends(); });
      if (!all) return;
      copied = all->front();
      const std::string fault = copy(copied);
      under_way_ = {};
      server_.offer("copies", {});
      if (fault.empty()) continue;
      // All have heard it, and it may be so at each save.
      const auto level =
          place_.node == 0 && !std::exchange(said, true) ? LogLevel::warn : LogLevel::debug;
      log(level, "no copies on the next nodes of what ranks have in memory: {}", fault);
    }
  } catch (const std::exception& error) {
    if (!stop_) log_debug("no more copies for the next node: {}", error.what());
  }
}

std::string NeighbourCopies::copy(const std::string& save) {
  const int nodes = static_cast<int>(place_.workers_of_nodes.size());
  const auto ends = [this] { return this->ends(); };
  StagedParts ours;
  try {
    under_way_.own = stage(save);
    std::vector<PartServer::Offer> offers;
    for (const HandedSnapshot& part : under_way_.own) {
      ours.parts.emplace_back(part.rank, bytes_in(part.fd.get()));
      offers.push_back({save, part.rank, part.fd.get()});
    }
    server_.offer("copies", offers);
    ours.address = net::Address{host_, server_.port()}.text();
  } catch (const std::exception& error) {
    ours.fault = fmt::format("node {}: {}", place_.node, error.what());
  }
  HearAll staging(*table_, "staged/" + save, place_.node, nodes);
  const auto staged = staging.round(encode(ours), Deadline::never(), ends);
  check<Error>(staged.has_value(), "the attempt is over");
  std::string fault;
  for (const std::string& text : *staged)
    if (fault.empty()) fault = decode<StagedParts>(text).fault;
  if (fault.empty()) try {
      const int before = (place_.node + nodes - 1) % nodes;
      const auto theirs = decode<StagedParts>(staged->at(static_cast<size_t>(before)));
      uint64_t bytes = 0;
      for (const auto& [rank, size] : theirs.parts) bytes += size;
      check_room(bytes);
      for (const auto& [rank, size] : theirs.parts)
        under_way_.others.push_back(
            {fetch_part(theirs.address, credentials_, save, rank, size, ends),
             static_cast<int>(rank)});
    } catch (const std::exception& error) {
      fault = fmt::format("node {}: {}", place_.node, error.what());
    }
  HearAll copying(*table_, "copied/" + save, place_.node, nodes);
  const auto copied = copying.round(fault, Deadline::never(), ends);
  check<Error>(copied.has_value(), "the attempt is over");
  // All have read what was said before.
  table_->delete_key(fmt::format("staged/{}/0/{}", save, place_.node));
  if (!told_.empty()) table_->delete_key(told_);
  told_ = fmt::format("copied/{}/0/{}", save, place_.node);
  for (const std::string& text : *copied)
    if (!text.empty()) return text;
  whole_ = std::exchange(under_way_, {});
  return "";
}

const std::optional<SnapshotNote>& NeighbourCopies::look_at(Seen& seen) {
  std::string head(OutputFile::kPage, '\0');
  const auto size = static_cast<ssize_t>(head.size());
  if (::pread(seen.memory.fd.get(), head.data(), head.size(), 0) != size) head.clear();
  if (head == seen.head) return seen.note;
  seen.head = std::move(head);
  seen.note.reset();
  try {
    const auto snapshot = HeldSnapshot::open(seen.memory.fd.get());
    if (!snapshot || !snapshot->note().resumes || snapshot->note().partial) return seen.note;
    seen.note = snapshot->note();
    seen.note->values.clear();
  } catch (const std::exception& error) {  // its rank writes over it
    log_debug("a snapshot is not copied now: {}", error.what());
  }
  return seen.note;
}

std::string NeighbourCopies::newest_save() {
  std::vector<std::shared_ptr<Seen>> seen;
  {
    const std::lock_guard lock(mutex_);
    seen = seen_;
  }
  std::map<std::pair<int64_t, std::string>, std::set<int64_t>> saves;
  for (const auto& memory : seen)
    if (const auto& note = look_at(*memory)) saves[{note->step, note->save}].insert(note->rank);
  const int ranks = place_.workers_of_nodes[static_cast<size_t>(place_.node)];
  for (auto save = saves.rbegin(); save != saves.rend(); ++save)
    if (save->second.size() == static_cast<size_t>(ranks)) return save->first.second;
  return "";
}

std::vector<std::shared_ptr<NeighbourCopies::Seen>> NeighbourCopies::with(const std::string& save) {
  const int ranks = place_.workers_of_nodes[static_cast<size_t>(place_.node)];
  const auto deadline = Deadline::after(kSaveIsMade);
  while (true) {
    std::vector<std::shared_ptr<Seen>> seen;
    {
      const std::lock_guard lock(mutex_);
      seen = seen_;
    }
    std::erase_if(seen, [&](const auto& memory) {
      const auto& note = look_at(*memory);
      return !note || note->save != save;
    });
    if (seen.size() == static_cast<size_t>(ranks)) return seen;
    check<ResourceError>(!stop_ && !deadline.expired(), "its ranks do not have {} any more", save);
    ::poll(nullptr, 0, 10);
  }
}

std::vector<HandedSnapshot> NeighbourCopies::stage(const std::string& save) {
  const auto all = with(save);
  uint64_t sum = 0;
  for (const auto& seen : all) sum += bytes_in(seen->memory.fd.get());
  check_room(sum);
  std::vector<HandedSnapshot> staged;
  std::string piece;
  for (const auto& seen : all) {
    const int from = seen->memory.fd.get();
    const uint64_t bytes = bytes_in(from);
    UniqueFd copy = part_memory(bytes);
    for (uint64_t at = 0; at < bytes && !stop_; at += piece.size()) {
      piece.resize(std::min<uint64_t>(kPartPiece, bytes - at));
      const auto size = static_cast<ssize_t>(piece.size());
      if (::pread(from, piece.data(), piece.size(), static_cast<off_t>(at)) != size ||
          ::pwrite(copy.get(), piece.data(), piece.size(), static_cast<off_t>(at)) != size)
        fail<ResourceError>("cannot copy a snapshot: {}", errno_text());
    }
    // A rank that writes over it has taken its mark away first.
    const auto& after = look_at(*seen);
    check<ResourceError>(!stop_ && after && after->save == save,
                         "rank {} makes snapshots faster than they are copied", seen->memory.rank);
    if (!seal_snapshot(copy.get())) fail<ResourceError>("cannot seal memory: {}", errno_text());
    staged.push_back({std::move(copy), seen->memory.rank});
  }
  return staged;
}

}  // namespace trireme::launch
