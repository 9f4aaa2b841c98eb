// SPDX-License-Identifier: Apache-2.0
// Sequences of 384 pieces that a core makes micro-batches of in a second, with all their tensors.
//   ninja -C build/release feeding && build/release/bench/feeding
// Beside each figure stands what it is bound by: what memory could write, or reading and WordPiece.
// Seconds are this process's CPU time, so others on the machine change little. Exits with 1 where
// feeding from random pieces, or from documents that are in pieces already, in memory or prepared
// on disk, is below the bound.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bench/made_language.h"
#include "trireme/base/file.h"
#include "trireme/data/sources/question_source.h"

using namespace trireme;

namespace {

constexpr double kBound = 20'000;  // sequences a CPU second
constexpr int64_t kRows = 32, kLength = 384;
constexpr int64_t kBytes = 3 * kLength * 8;  // of a sequence: pieces, types and mask

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Sequences a second that memory would take if they only had to be copied.
double copied() {
  constexpr size_t kSize = size_t{256} << 20;
  const std::vector<char> from(kSize, 1);
  std::vector<char> to(kSize);
  const double before = cpu_seconds();
  constexpr int kTimes = 4;
  for (int i = 0; i < kTimes; ++i) std::memcpy(to.data(), from.data() + i, kSize - 8);
  return kTimes * static_cast<double>(kSize) / (cpu_seconds() - before) / kBytes;
}

struct Rate {
  double rate = 0, length = 0;
};

/// `count` samples from number 0 on, again and again through the source, in micro-batches.
Rate feed(const DataSource& source, int64_t count, int64_t epoch) {
  std::vector<int64_t> ids(kRows);
  int64_t pieces = 0;
  const double before = cpu_seconds();
  for (int64_t at = 0; at < count; at += kRows) {
    for (int64_t i = 0; i < kRows; ++i) ids[static_cast<size_t>(i)] = (at + i) % source.size();
    pieces += source.get_in_epoch(ids, epoch).input.numel();
  }
  const double seconds = cpu_seconds() - before;
  return {static_cast<double>(count) / seconds,
          static_cast<double>(pieces) / static_cast<double>(count)};
}

uint64_t bytes_in(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

bool show(const char* what, const Rate& rate, const std::string& bound, bool counts) {
  const bool good = !counts || rate.rate >= kBound;
  fmt::print("{:56} {:8.0f} sequences/s a core of {:.0f} pieces  ({}){}\n", what, rate.rate,
             rate.length, bound, good ? "" : fmt::format("  BELOW {:.0f}", kBound));
  return good;
}

}  // namespace

int main() {
  const PrivateFolder folder;
  bench::MadeLanguage language(1);
  constexpr int64_t kDocuments = 500;
  std::string all;
  for (int64_t i = 0; i < kDocuments; ++i) all += language.natural_question(i);
  write_file_atomic(folder / "nq.jsonl", all);
  write_file_atomic(folder / "vocab.txt", language.vocabulary());
  const double megabytes = static_cast<double>(all.size()) / 1e6;

  const std::string memory = fmt::format("memory alone: {:.0f}", copied());
  bool good = true;
  const auto dummy = make_dummy_questions();
  feed(*dummy, kRows, 0);
  good &= show("random pieces", feed(*dummy, 100'000, 1), memory, true);

  QuestionOptions options;
  options.path = folder / "nq.jsonl";
  options.vocabulary = folder / "vocab.txt";
  options.chunks.drop_tags = true;
  options.keep_bytes = int64_t{1} << 30;
  const double before = cpu_seconds();
  const QuestionData data = open_questions(options);
  const double opening = cpu_seconds() - before;
  fmt::print("opening: {:.0f} MB a CPU second ({})\n", megabytes / opening, data.train->describe());

  const Rate first = feed(*data.train, data.train->size() / kRows * kRows, 0);
  const double each = megabytes / kDocuments;
  show("a chunk of each question, its line read and cut", first,
       fmt::format("reading and WordPiece: {:.0f} MB a CPU second", first.rate * each), false);
  good &=
      show("a chunk of each question, kept in pieces", feed(*data.train, 100'000, 1), memory, true);

  options.keep_bytes = 100'000;  // two documents: each is read once, and its chunks follow
  const QuestionData afresh = open_questions(options);
  const Rate chunks = feed(*afresh.held_out, afresh.held_out->size() / kRows * kRows, 0);
  good &= show("each chunk of each question, lines read and cut", chunks,
               fmt::format("reading and WordPiece: {:.0f} MB a CPU second",
                           chunks.rate * each * static_cast<double>(afresh.held_out->questions()) /
                               static_cast<double>(afresh.held_out->size())),
               true);

  // Preparing is a step of its own; what is prepared is read where it is mapped, and not kept.
  options.prepared_folder = folder / "prepared";
  options.keep_bytes = 0;
  const double before_preparing = cpu_seconds();
  const QuestionData made = open_questions(options);
  const double preparing = cpu_seconds() - before_preparing;
  fmt::print("preparing: {:.0f} MB a CPU second, {:.2f} of the file's size on disk\n",
             megabytes / preparing,
             static_cast<double>(bytes_in(options.prepared_folder)) / 1e6 / megabytes);
  const Rate pass = feed(*made.train, made.train->size() / kRows * kRows, 0);
  const double all_of_it = preparing + static_cast<double>(made.train->size()) / pass.rate;
  show("a chunk of each question, the first pass with preparing",
       {static_cast<double>(made.train->size()) / all_of_it, pass.length},
       "reading and WordPiece of all of it", false);
  const double before_opening = cpu_seconds();
  const QuestionData prepared = open_questions(options);
  fmt::print("opening what is prepared: {:.1f} ms of CPU time\n",
             1e3 * (cpu_seconds() - before_opening));
  good &= show("a chunk of each question, prepared",
               feed(*prepared.train, 20'000 / kRows * kRows, 1), memory, true);
  return good ? 0 : 1;
}
