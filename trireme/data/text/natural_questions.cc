// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/natural_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/data/text/utf8.h"

namespace trireme {
namespace {

using nlohmann::json;

constexpr int64_t kNotGiven = std::numeric_limits<int64_t>::min();

struct Words {  // the first and the one behind the last
  int64_t begin = kNotGiven, end = kNotGiven;
};

/// What a line says, taken as the parser goes: long_answer_candidates, most of its values, are only
/// passed over.
struct Line {
  std::string *document = nullptr, *question = nullptr, *id = nullptr;
  bool has_document = false, has_question = false, has_id = false, has_annotation = false;
  std::string yes_no;
  bool has_yes_no = false, has_long = false, has_shorts = false, has_short = false;
  Words long_answer, short_answer;
  int64_t candidate = kNotGiven;
};

class LineParser {
 public:
  LineParser(Line* line, const std::string& where) : line_(line), where_(where) {}
  size_t stopped_at() const { return stopped_at_; }

  bool null() { return value("null"); }
  bool boolean(bool) { return value("a truth value"); }
  bool number_float(json::number_float_t, const std::string&) { return value("a fraction"); }
  bool number_integer(json::number_integer_t v) { return number(v); }
  bool number_unsigned(json::number_unsigned_t v) {
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return value("a number beyond 2^63");
    return number(static_cast<int64_t>(v));
  }
  bool string(std::string& v) {
    if (place() == Place::root && key_ == Key::document)
      return take(v, line_->document, "document_text", &line_->has_document);
    if (place() == Place::root && key_ == Key::question)
      return take(v, line_->question, "question_text", &line_->has_question);
    if (place() == Place::root && key_ == Key::id)
      return take(v, line_->id, "example_id", &line_->has_id);
    if (place() == Place::annotation && key_ == Key::yes_no)
      return take(v, &line_->yes_no, "yes_no_answer", &line_->has_yes_no);
    return value("a text");
  }
  bool binary(json::binary_t&) { return false; }  // not in JSON
  bool key(std::string& name) {
    key_ = Key::other;
    if (place() == Place::root)
      key_ = name == "document_text"   ? Key::document
             : name == "question_text" ? Key::question
             : name == "example_id"    ? Key::id
             : name == "annotations"   ? Key::annotations
                                       : Key::other;
    else if (place() == Place::annotation)
      key_ = name == "yes_no_answer"   ? Key::yes_no
             : name == "long_answer"   ? Key::long_answer
             : name == "short_answers" ? Key::short_answers
                                       : Key::other;
    else if (place() == Place::long_answer || place() == Place::short_answer)
      key_ = name == "start_token"       ? Key::start
             : name == "end_token"       ? Key::end
             : name == "candidate_index" ? Key::candidate
                                         : Key::other;
    return true;
  }
  bool start_object(size_t) {
    Place inside = Place::passed;
    if (places_.empty()) {
      inside = Place::root;
    } else if (place() == Place::annotations && !std::exchange(line_->has_annotation, true)) {
      inside = Place::annotation;
    } else if (place() == Place::annotation && key_ == Key::long_answer) {
      once(&line_->has_long, "long_answer");
      inside = Place::long_answer;
    } else if (place() == Place::shorts && !std::exchange(line_->has_short, true)) {
      inside = Place::short_answer;
    } else {
      refuse_kind("an object");
    }
    return open(inside);
  }
  bool start_array(size_t) {
    check<Corrupt>(!places_.empty(), "{}: an array where an object should be", where_);
    Place inside = Place::passed;
    if (place() == Place::root && key_ == Key::annotations) {
      once(&has_annotations_, "annotations");
      inside = Place::annotations;
    } else if (place() == Place::annotation && key_ == Key::short_answers) {
      once(&line_->has_shorts, "short_answers");
      inside = Place::shorts;
    } else {
      refuse_kind("an array");
    }
    return open(inside);
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const json::exception&) {
    stopped_at_ = position;
    return false;
  }

 private:
  enum class Place : uint8_t {
    root,
    annotations,
    annotation,
    long_answer,
    shorts,
    short_answer,
    passed,
    none
  };
  enum class Key : uint8_t {
    other,
    document,
    question,
    id,
    annotations,
    yes_no,
    long_answer,
    short_answers,
    start,
    end,
    candidate
  };
  static constexpr size_t kDeepest = 64;

  Place place() const { return places_.empty() ? Place::none : places_.back(); }
  bool open(Place inside) {
    check<Corrupt>(places_.size() < kDeepest, "{}: nested more than {} deep", where_, kDeepest);
    places_.push_back(inside);
    key_ = Key::other;
    return true;
  }
  bool close() {
    places_.pop_back();
    key_ = Key::other;
    return true;
  }
  void once(bool* seen, const char* name) {
    check<Corrupt>(!std::exchange(*seen, true), "{}: '{}' occurs twice", where_, name);
  }
  bool take(std::string& from, std::string* to, const char* name, bool* seen) {
    once(seen, name);
    to->swap(from);  // the parser's text and ours are used by turns, without a copy
    return true;
  }
  bool number(int64_t v) {
    if (place() == Place::root && key_ == Key::id) {
      std::string text = fmt::to_string(v);
      return take(text, line_->id, "example_id", &line_->has_id);
    }
    if (place() == Place::long_answer || place() == Place::short_answer) {
      Words& words = place() == Place::long_answer ? line_->long_answer : line_->short_answer;
      int64_t* to = key_ == Key::start                                        ? &words.begin
                    : key_ == Key::end                                        ? &words.end
                    : key_ == Key::candidate && place() == Place::long_answer ? &line_->candidate
                                                                              : nullptr;
      if (to == nullptr) return true;
      check<Corrupt>(*to == kNotGiven, "{}: a member of an answer occurs twice", where_);
      *to = v;
      return true;
    }
    return value("a number");
  }
  /// A value that nobody takes: refused where another kind belongs.
  bool value(const char* kind) {
    refuse_kind(kind);
    check<Corrupt>(!places_.empty(), "{}: {} where an object should be", where_, kind);
    return true;
  }
  void refuse_kind(const char* kind) const {
    const bool wanted =
        key_ != Key::other || place() == Place::annotations || place() == Place::shorts;
    // Behind the first annotation, or the first short answer, objects are passed over.
    const bool more = (place() == Place::annotations || place() == Place::shorts) &&
                      std::strcmp(kind, "an object") == 0;
    check<Corrupt>(!wanted || more, "{}: {} where {} should be", where_, kind, what_belongs());
  }
  const char* what_belongs() const {
    switch (key_) {
      case Key::document:
        return "the text of 'document_text'";
      case Key::question:
        return "the text of 'question_text'";
      case Key::id:
        return "the number or text of 'example_id'";
      case Key::annotations:
        return "the array of 'annotations'";
      case Key::yes_no:
        return "the text of 'yes_no_answer'";
      case Key::long_answer:
        return "the object of 'long_answer'";
      case Key::short_answers:
        return "the array of 'short_answers'";
      case Key::start:
        return "the whole number of 'start_token'";
      case Key::end:
        return "the whole number of 'end_token'";
      case Key::candidate:
        return "the whole number of 'candidate_index'";
      case Key::other:
        break;
    }
    return "an object of the array";
  }

  Line* line_;
  const std::string& where_;
  std::vector<Place> places_;
  Key key_ = Key::other;
  bool has_annotations_ = false;
  size_t stopped_at_ = 0;
};

/// Bytes of the words [begin, end) of a text with one space between words.
void place_answer(const Words& words, const char* what, Question* out) {
  check<Corrupt>(words.begin != kNotGiven && words.end != kNotGiven,
                 "{}: the {} has no start_token or no end_token", out->where, what);
  const std::string& text = out->document;
  bool found = false;
  int64_t word = 0;
  for (size_t at = 0; words.begin >= 0 && words.begin < words.end;) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (word == words.begin) out->answer_begin = static_cast<uint32_t>(at);
    if (++word == words.end) {
      out->answer_end = static_cast<uint32_t>(end);
      found = true;
      break;
    }
    if (end == text.size()) break;
    at = end + 1;
  }
  check<Corrupt>(found, "{}: the {} is words {} to {}, and the document has {}", out->where, what,
                 words.begin, words.end,
                 text.empty() ? 0 : 1 + std::count(text.begin(), text.end(), ' '));
}

}  // namespace

void read_natural_question(std::string_view text, const std::string& where, Question* out) {
  out->where = where;
  out->answers.clear();
  Line line;
  line.document = &out->document;
  line.question = &out->question;
  line.id = &out->id;
  LineParser parser(&line, where);
  if (!json::sax_parse(text.begin(), text.end(), &parser)) {
    const auto bad = first_not_utf8(text);
    check<Corrupt>(!bad, "{}: byte {} of the line is not UTF-8", where, bad.value_or(0) + 1);
    check<Corrupt>(parser.stopped_at() <= text.size(),
                   "{}: the line ends within its JSON: the file may have been cut off", where);
    fail<Corrupt>("{}: not JSON at byte {} of the line", where, parser.stopped_at());
  }
  check<Corrupt>(line.has_document, "{}: no 'document_text'", where);
  check<Corrupt>(line.has_question, "{}: no 'question_text'", where);
  check<Corrupt>(line.has_id, "{}: no 'example_id'", where);
  check<Corrupt>(line.has_annotation,
                 "{}: no annotation (the test file has none: it is not for training)", where);
  check<Corrupt>(line.has_yes_no && line.has_long && line.has_shorts,
                 "{}: the annotation lacks yes_no_answer, long_answer or short_answers", where);
  check<Corrupt>(!only_spaces(out->document), "{}: the document is empty", where);
  check<Corrupt>(!only_spaces(out->question), "{}: the question is empty", where);
  check<Corrupt>(out->document.size() < std::numeric_limits<uint32_t>::max(),
                 "{}: a document of 4 GiB or more", where);
  check<Corrupt>(line.candidate != kNotGiven, "{}: long_answer has no candidate_index", where);
  out->answer_begin = out->answer_end = 0;
  if (line.yes_no == "YES" || line.yes_no == "NO") {
    out->answer_class = line.yes_no == "YES" ? AnswerClass::yes : AnswerClass::no;
    place_answer(line.long_answer, "long answer", out);
  } else if (line.yes_no != "NONE") {
    fail<Corrupt>("{}: yes_no_answer is none of YES, NO and NONE", where);
  } else if (line.has_short) {
    out->answer_class = AnswerClass::short_answer;
    place_answer(line.short_answer, "short answer", out);
  } else if (line.candidate != -1) {
    out->answer_class = AnswerClass::long_answer;
    place_answer(line.long_answer, "long answer", out);
  } else {
    out->answer_class = AnswerClass::unknown;
  }
}

NaturalQuestionsReader::NaturalQuestionsReader(const std::string& path,
                                               const NaturalQuestionsOptions& options)
    : file_(path),
      longest_line_(options.longest_line),
      bad_(options.bad),
      at_(std::min(options.begin, file_.bytes().size())),
      end_(std::min(options.end, file_.bytes().size())),
      within_line_(at_ > 0 && file_.bytes()[at_ - 1] != '\n') {}

bool NaturalQuestionsReader::next(Question* out) {
  const auto bytes = file_.bytes();
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  // The end of a line within so many bytes, or of what is left of the file.
  const auto line_end = [&](size_t within) {
    const size_t most = std::min(within, bytes.size() - at_);
    const void* newline = std::memchr(text + at_, '\n', most);
    return newline != nullptr ? static_cast<size_t>(static_cast<const char*>(newline) - text)
                              : at_ + most;
  };
  while (at_ < end_) {
    if (std::exchange(within_line_, false)) {
      at_ = std::min(line_end(bytes.size()) + 1, bytes.size());
      continue;
    }
    const size_t begin = at_;
    const size_t end = line_end(std::max(longest_line_ + 1, longest_line_)), length = end - begin;
    within_line_ = length > longest_line_;
    at_ = std::min(end + (within_line_ ? 0 : 1), bytes.size());
    line_ = {begin, length, ++lines_};
    try {
      check<Corrupt>(length <= longest_line_,
                     "{}:{}: a line of more than {} bytes, which is no question", file_.path(),
                     lines_, longest_line_);
      read(line_, out);
      return true;
    } catch (const Corrupt& error) {
      bad_.found(error.what());
    }
  }
  return false;
}

void NaturalQuestionsReader::read(const Line& line, Question* out) const {
  const size_t size = file_.bytes().size();
  check<Corrupt>(line.begin <= size && line.length <= size - line.begin,
                 "{}:{}: the line was bytes {} to {}, and the file has {} now: it has changed",
                 file_.path(), line.number, line.begin, line.begin + line.length, size);
  const auto bytes = file_.bytes().subspan(line.begin, line.length);
  read_natural_question({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                        fmt::format("{}:{}", file_.path(), line.number), out);
}

}  // namespace trireme
