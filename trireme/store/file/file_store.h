// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/store/file/file_log.h"
#include "trireme/store/file/file_seats.h"
#include "trireme/store/one_user.h"
#include "trireme/store/store.h"

namespace trireme {

/// A table in one file that all ranks can reach: a folder of this host, or of a file system that
/// the hosts share with its locks (NFS). Nobody serves; whoever waits looks at the file again and
/// again, so it is for meeting and small agreements, not for traffic. The file is a log
/// (store/file/file_log.h) that only grows, to 1 GiB at most, is its user's alone (mode 0600: who
/// may write it may join), and goes with the last of its users. Each object holds a lock that
/// vanishes with its process: so the dead are told from the living, wills are carried out by
/// whoever looks next, and a file that an earlier job left behind is recognised. Threads: one at a
/// time per object; clone() opens the file again.
class TRIREME_API FileStore final : public Store {
 public:
  using Member = detail::FileMember;
  static constexpr size_t kMaxFileBytes = size_t{1} << 30;
  static constexpr Duration kAnswerLimit = std::chrono::seconds(30);

  /// Makes the file or enters it, as one rank of a job. An earlier group of this job that is still
  /// leaving it is waited for (Timeout), and what an earlier attempt of it left behind is taken
  /// over. UsageError naming who holds it: another job, a rank that is there already, another
  /// world size, an earlier run that was killed (with what to delete). Corrupt, Mismatch: it is no
  /// such file. ResourceError: it cannot be made, opened or locked.
  static std::unique_ptr<FileStore> join(const std::string& path, const Member& member,
                                         Deadline deadline);
  /// Leaves; the last one removes the file.
  ~FileStore() override;

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  void wait(const std::vector<std::string>& keys, Deadline deadline) override;
  std::vector<std::string> missing(const std::vector<std::string>& keys) override;
  bool delete_key(const std::string& key) override;
  int64_t count_keys(std::string_view prefix) override;
  void set_will(const std::string& key, std::string_view value) override;
  void clear_will() override;
  /// How long a call may wait for the file's lock.
  void set_answer_limit(Duration limit) override { answer_limit_ = limit; }
  std::unique_ptr<Store> clone(Deadline deadline) override;
  std::string describe() const override { return "file://" + path_; }

 private:
  explicit FileStore(std::string path) : path_(std::move(path)) {}

  detail::FileSeat try_enter(const Member& member, Deadline deadline);
  void open(int more_flags);
  bool names_this_file() const;
  bool lives(uint32_t client) const;
  void enter(uint32_t rank, std::string before);
  void leave();
  bool remove_file();

  void catch_up();
  void look();
  void wait_for(const std::vector<std::string>& keys, Deadline deadline);
  void append(const detail::FileRecord& record);
  void append_bytes(std::string_view bytes);
  void write_all(std::string_view bytes);
  void carry_out_wills();
  std::vector<std::string> missing_now(const std::vector<std::string>& keys) const;
  template <class Change>
  auto change(const Change& make);

  std::string path_;
  UniqueFd fd_;
  detail::FileState state_;
  uint64_t end_ = 0;      // of what state_ knows of the file
  bool is_torn_ = false;  // the file goes on behind that
  uint32_t number_ = detail::kNoRank;
  bool has_will_ = false;
  bool is_remote_ = false;  // writes may fail later: they are flushed
  Duration answer_limit_ = kAnswerLimit;
  Deadline next_wills_ = Deadline::after(Duration::zero());
  detail::StoreUse use_;
};

}  // namespace trireme
