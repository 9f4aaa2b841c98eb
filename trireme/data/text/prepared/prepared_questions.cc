// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/prepared/prepared_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/data/text/prepared/make_part.h"
#include "trireme/data/text/prepared/part_lock.h"
#include "trireme/data/text/prepared/part_plan.h"

namespace trireme {
namespace {

constexpr const char* kPartEnding = ".pieces";

std::string part_name(uint64_t part) { return fmt::format("part-{:05}{}", part, kPartEnding); }

std::string_view as_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// All parts of one file of questions, taken where they are good and made where they are not.
class Preparation {
 public:
  Preparation(const std::string& path, std::shared_ptr<const Vocabulary> vocabulary,
              const PreparedOptions& options)
      : path_(path),
        vocabulary_(std::move(vocabulary)),
        options_(options),
        folder_(prepared_folder_of(path, options.folder)),
        stamp_(stamp_of(path)),
        format_(options.file.format == QuestionFormat::by_content ? format_of_questions(path)
                                                                  : options.file.format),
        plan_(PartPlan::of(stamp_.bytes, format_ == QuestionFormat::natural_questions,
                           options.part_bytes)),
        rules_(rules_of(*vocabulary_, options.word_piece, options.drop_tags,
                        options.file.longest_line)),
        parts_(plan_.parts()) {}

  std::shared_ptr<const PreparedQuestions> run() {
    std::vector<uint64_t> others;  // are making them
    for (uint64_t part = 0; part < parts_.size() && !stopped_; ++part)
      if (!take(part) && !make(part, PartLocks::Wait::no)) others.push_back(part);
    for (const uint64_t part : others)
      if (!stopped_ && !take(part)) make(part, PartLocks::Wait::until_free);
    if (stopped_) return nullptr;
    check<ResourceError>(stamp_of(path_) == stamp_, "{} has changed meanwhile", path_);
    if (made_ > 0) {
      remove_parts_behind();
      log_info("questions: {} of {} parts of {} are prepared in {:.1f} s, in {}", made_,
               parts_.size(), path_, seconds_since(begun_), folder_);
    }
    return std::make_shared<const PreparedQuestions>(path_, vocabulary_->size(), std::move(parts_));
  }

 private:
  std::string place(uint64_t part) const { return folder_ + "/" + part_name(part); }
  PartOrigin origin(uint64_t part) const {
    return {stamp_, rules_, plan_.begin(part), plan_.end(part)};
  }

  /// Maps the part that is there, if it is good.
  bool take(uint64_t part) {
    const std::string file = place(part);
    if (path_kind(file) != PathKind::file) return false;
    std::string why;
    try {
      MappedFile mapped(file);
      PreparedPart pieces(as_text(mapped), file);
      why = other_origin(pieces.origin(), origin(part));
      if (why.empty() && pieces.index().of_lines != (format_ != QuestionFormat::squad))
        why = "it is of a file of another format";
      if (why.empty()) {
        stopped_ |= options_.file.bad == OnBadSample::stop && pieces.index().left_out > 0;
        parts_[part] = std::make_unique<const PreparedQuestions::Part>(
            PreparedQuestions::Part{std::move(mapped), std::move(pieces)});
        mark_alive();
        return true;
      }
    } catch (const Corrupt& error) {
      why = error.what();
    } catch (const Mismatch& error) {
      why = error.what();
    } catch (const UsageError&) {  // somebody has removed it since
      return false;
    }
    if (!std::exchange(said_, true))
      log_info("questions: what is in {} is made anew: {}", folder_, why);
    return false;
  }

  /// False: somebody else is making it.
  bool make(uint64_t part, PartLocks::Wait wait) {
    if (!locks_) {
      make_folders(folder_);
      locks_.emplace(folder_ + "/lock");
    }
    const auto lock = locks_->take(part, wait);
    if (!lock) return false;
    if (take(part)) return true;  // somebody has made it since
    if (made_++ == 0)
      log_info("questions: preparing {} ({:.0f} MB, {} parts) in {}", path_,
               static_cast<double>(plan_.bytes) / 1e6, parts_.size(), folder_);
    if (lock->excludes()) remove_unfinished(part);
    write_file_atomic(place(part), bytes_of(part));
    check<ResourceError>(take(part), "{} is not what was written", place(part));
    return true;
  }

  std::string bytes_of(uint64_t part) const {
    if (format_ == QuestionFormat::squad)
      return make_part_of_squad(path_, origin(part), vocabulary_, options_.word_piece,
                                options_.drop_tags);
    return make_part_of_lines(path_, plan_.begin(part), plan_.end(part), options_.file.longest_line,
                              origin(part), vocabulary_, options_.word_piece, options_.drop_tags);
  }

  /// What processes that were killed have left of it.
  void remove_unfinished(uint64_t part) const {
    for (const std::string& name : list_folder(folder_))
      if (name.starts_with(part_name(part) + ".tmp.")) remove_tree(folder_ + "/" + name);
  }
  /// Of a file that was longer.
  void remove_parts_behind() const {
    for (const std::string& name : list_folder(folder_))
      if (name.starts_with("part-") && name.ends_with(kPartEnding) &&
          name >= part_name(parts_.size()))
        remove_tree(folder_ + "/" + name);
  }

  const std::string path_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const PreparedOptions options_;
  const std::string folder_;
  const SourceStamp stamp_;
  const QuestionFormat format_;
  const PartPlan plan_;
  const uint64_t rules_;
  std::vector<std::unique_ptr<const PreparedQuestions::Part>> parts_;
  std::optional<PartLocks> locks_;
  const Clock::time_point begun_ = Clock::now();
  uint64_t made_ = 0;
  bool said_ = false;     // why something is made anew
  bool stopped_ = false;  // there is a bad sample, and one stops
};

}  // namespace

std::string prepared_folder_of(const std::string& path, const std::string& folder) {
  std::error_code failed;
  std::filesystem::path whole = std::filesystem::canonical(path, failed);
  if (failed) whole = std::filesystem::absolute(path);
  return fmt::format("{}/{}-{:016x}", folder, whole.filename().string(),
                     stable_hash(whole.string()));
}

std::shared_ptr<const PreparedQuestions> prepare_questions(
    const std::string& path, const std::shared_ptr<const Vocabulary>& vocabulary,
    const PreparedOptions& options) {
  try {
    return Preparation(path, vocabulary, options).run();
  } catch (const ResourceError& error) {
    log_warn("questions: pieces are not kept in {}, and are cut again in each run: {}",
             options.folder, error.what());
    return nullptr;
  }
}

PreparedQuestions::PreparedQuestions(const std::string& path, int64_t vocabulary,
                                     std::vector<std::unique_ptr<const Part>> parts)
    : path_(path), vocabulary_(vocabulary), parts_(std::move(parts)) {
  first_.push_back(0);
  for (const auto& part : parts_) first_.push_back(first_.back() + part->pieces.size());
}

int64_t PreparedQuestions::left_out() const {
  int64_t count = 0;
  for (const auto& part : parts_) count += part->pieces.index().left_out;
  return count;
}

QuestionLines PreparedQuestions::lines() const {
  QuestionLines all;
  int64_t before = 0;
  for (const auto& part : parts_) {
    const PartIndex& index = part->pieces.index();
    for (size_t i = 0; i < index.numbers.size(); ++i)
      all.lines.push_back({index.begins[i], index.lengths[i], before + index.numbers[i]});
    all.classes.insert(all.classes.end(), index.classes.begin(), index.classes.end());
    for (const PartIndex::Bad& bad : index.first_left_out)
      all.first_left_out.push_back(fmt::format("{}:{}: {}", path_, before + bad.line, bad.what));
    before += index.lines;
  }
  all.left_out = left_out();
  return all;
}

void PreparedQuestions::read(int64_t number, QuestionPieces* out) const {
  check<UsageError>(number >= 0 && number < size(), "{}: there is no question {}: there are {}",
                    path_, number, size());
  const auto behind = std::upper_bound(first_.begin(), first_.end(), number);
  const auto part = static_cast<size_t>(behind - first_.begin()) - 1;
  parts_[part]->pieces.read(number - first_[part], vocabulary_, out);
}

}  // namespace trireme
