// SPDX-License-Identifier: Apache-2.0
// MB of Natural Questions a core turns into samples in a second: JSON lines read, WordPiece,
// chunks, one chosen.
//   ninja -C build/release preprocess && build/release/bench/preprocess
// The questions are made up (bench/made_language.h). Seconds are this process's CPU time, so others
// on the machine change little. Exits with 1 below the bound.
#include <fmt/format.h>
#include <time.h>

#include <memory>
#include <string>

#include "bench/made_language.h"
#include "trireme/base/file.h"
#include "trireme/data/text/natural_questions.h"
#include "trireme/data/text/question_chunks.h"

using namespace trireme;
using trireme::bench::MadeLanguage;

namespace {

constexpr double kBound = 20;  // MB a CPU second
constexpr int kDocuments = 800;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main() {
  const PrivateFolder folder;
  const std::string path = folder / "nq.jsonl";
  MadeLanguage language(1);
  const auto vocabulary =
      std::make_shared<Vocabulary>(Vocabulary::from_text(language.vocabulary(), "vocab.txt"));
  {
    std::string all;
    for (int i = 0; i < kDocuments; ++i) all += language.natural_question(i);
    write_file_atomic(path, all);
  }

  double bytes = 0;
  for (const bool whole : {false, true}) {
    NaturalQuestionsReader reader(path);
    QuestionChunker chunker(WordPieceTokenizer(vocabulary), {.drop_tags = true});
    Question question;
    QuestionSample sample;
    size_t pieces = 0, chunks = 0, unknown = 0;
    const double before = cpu_seconds();
    while (reader.next(&question)) {
      if (!whole) {
        bytes += static_cast<double>(question.document.size());
        continue;
      }
      chunker.cut(question);
      chunker.sample(chunker.choose(1, 0, reader.lines()), &sample);
      pieces += chunker.pieces().size();
      chunks += chunker.chunks().size();
      for (const TextPiece& piece : chunker.pieces()) unknown += piece.id == vocabulary->unknown();
    }
    const double seconds = cpu_seconds() - before;
    const double file_mb = static_cast<double>(read_file(path, size_t{1} << 30).size()) / 1e6;
    const double rate = file_mb / seconds;
    if (!whole) {
      fmt::print(
          "reading alone: {:.0f} MB a CPU second ({:.1f} MB of lines, {:.1f} MB of documents)\n",
          rate, file_mb, bytes / 1e6);
      continue;
    }
    fmt::print(
        "lines to samples: {:.0f} MB a CPU second ({} pieces, {:.2f}% unknown, {} chunks); bound "
        "{:.0f}\n",
        rate, pieces, 100.0 * static_cast<double>(unknown) / static_cast<double>(pieces), chunks,
        kBound);
    if (rate < kBound) return 1;
  }
}
