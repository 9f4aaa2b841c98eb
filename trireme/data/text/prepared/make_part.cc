// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/prepared/make_part.h"

#include <charconv>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/data/text/natural_questions.h"
#include "trireme/data/text/prepared/prepared_part.h"

namespace trireme {
namespace {

QuestionChunker chunker_of(std::shared_ptr<const Vocabulary> vocabulary,
                           const WordPieceOptions& word_piece, bool drop_tags) {
  return QuestionChunker(WordPieceTokenizer(std::move(vocabulary), word_piece),
                         {.drop_tags = drop_tags});
}

/// "PATH:7: why", apart: whoever reads the part numbers lines from the file's first.
PartIndex::Bad without_place(const std::string& what, const std::string& path) {
  PartIndex::Bad bad{0, what};
  if (!what.starts_with(path + ":")) return bad;
  const char *begin = what.data() + path.size() + 1, *end = what.data() + what.size();
  const auto [behind, error] = std::from_chars(begin, end, bad.line);
  if (error == std::errc() && std::string_view(behind, end).starts_with(": "))
    bad.what = std::string(behind + 2, end);
  return bad;
}

std::vector<PartIndex::Bad> without_places(const BadSamples& bad, const std::string& path) {
  std::vector<PartIndex::Bad> all;
  for (const std::string& what : bad.first()) all.push_back(without_place(what, path));
  return all;
}

}  // namespace

std::string make_part_of_lines(const std::string& path, uint64_t begin, uint64_t end,
                               uint64_t longest_line, const PartOrigin& origin,
                               std::shared_ptr<const Vocabulary> vocabulary,
                               const WordPieceOptions& word_piece, bool drop_tags) {
  PartWriter writer(origin, vocabulary->size(), true);
  QuestionChunker chunker = chunker_of(std::move(vocabulary), word_piece, drop_tags);
  NaturalQuestionsReader reader(
      path, {.bad = OnBadSample::skip, .longest_line = longest_line, .begin = begin, .end = end});
  Question question;
  QuestionPieces pieces;
  while (reader.next(&question)) {
    try {
      chunker.encode(question, &pieces);
    } catch (const Corrupt& error) {
      reader.leave_out(error.what());
      continue;
    }
    const NaturalQuestionsReader::Line& line = reader.line();
    writer.add(pieces, line.begin, line.length, line.number);
  }
  return writer.finish(reader.lines(), reader.bad().count(), without_places(reader.bad(), path));
}

std::string make_part_of_squad(const std::string& path, const PartOrigin& origin,
                               std::shared_ptr<const Vocabulary> vocabulary,
                               const WordPieceOptions& word_piece, bool drop_tags) {
  PartWriter writer(origin, vocabulary->size(), false);
  QuestionChunker chunker = chunker_of(std::move(vocabulary), word_piece, drop_tags);
  const QuestionFile file(path, {.format = QuestionFormat::squad, .bad = OnBadSample::skip},
                          [&](const Question& question) { chunker.check_cuttable(question); });
  Question question;
  QuestionPieces pieces;
  for (int64_t number = 0; number < file.size(); ++number) {
    file.read(number, &question);
    chunker.encode(question, &pieces);
    writer.add(pieces);
  }
  return writer.finish(0, file.bad().count(), without_places(file.bad(), path));
}

}  // namespace trireme
