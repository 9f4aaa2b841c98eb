// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/json_reader.h"

#include <charconv>
#include <map>

#include "trireme/base/check.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/// Returns the length of the well-formed UTF-8 sequence at the start of `text`, or 0.
size_t utf8_length(std::string_view text) {
  auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if ((b == 0xE0 && byte(1) < 0xA0) || (b == 0xED && byte(1) > 0x9F)) return 0;
    return 3;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if ((b == 0xF0 && byte(1) < 0x90) || (b == 0xF4 && byte(1) > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

void append_utf8(std::string* out, uint32_t code) {
  auto put = [&](uint32_t byte) { *out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)),
        put(0x80 | (code & 0x3F));
  }
}

class Reader {
 public:
  Reader(const std::string& name, std::string_view text)
      : name_(std::make_shared<const std::string>(name)), text_(text) {}

  Value document() {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
    skip_blank();
    if (done()) refuse(here(), "the file is empty; expected \"{\"");
    Value root = value(0);
    skip_blank();
    if (!done()) refuse(here(), fmt::format("{} after the end of the document", seen()));
    return root;
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  Origin here() const { return {name_, line_, column_}; }

  [[noreturn]] void refuse(const Origin& at, const std::string& why) const {
    fail<UsageError>("{}: {}", at.str(), why);
  }

  /// Describes the next character for messages.
  std::string seen() const {
    if (done()) return "the end of the file";
    auto rest = text_.substr(at_);
    if (is_word(rest[0])) {
      size_t n = 0;
      while (n < rest.size() && n < 30 && is_word(rest[n])) ++n;
      return "\"" + std::string(rest.substr(0, n)) + "\"";
    }
    size_t n = utf8_length(rest);
    if (n == 0) return fmt::format("the byte 0x{:02x}", static_cast<unsigned char>(rest[0]));
    if (n == 1 && (static_cast<unsigned char>(rest[0]) < 0x20 || rest[0] == 0x7f))
      return fmt::format("the control character 0x{:02x}", static_cast<unsigned char>(rest[0]));
    return "\"" + std::string(rest.substr(0, n)) + "\"";
  }

  /// Consumes one character and updates line and column.
  void step() {
    size_t n = utf8_length(text_.substr(at_));
    if (n == 0) refuse(here(), seen() + " is not valid UTF-8; save the file as UTF-8");
    if (text_[at_] == '\n') {
      ++line_;
      column_ = 1;
    } else {
      ++column_;
    }
    at_ += n;
  }

  void skip_blank() {
    while (!done()) {
      char c = peek();
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        step();
      } else if (c == '#' || (c == '/' && peek(1) == '/')) {
        while (!done() && peek() != '\n') step();
      } else if (c == '/' && peek(1) == '*') {
        Origin start = here();
        step(), step();
        while (!done() && !(peek() == '*' && peek(1) == '/')) step();
        if (done()) refuse(start, "this /* comment is never closed");
        step(), step();
      } else {
        return;
      }
    }
  }

  Value value(int depth) {
    if (depth >= kConfigDepthLimit)
      refuse(here(), fmt::format("nested deeper than {} levels", kConfigDepthLimit));
    if (++values_ > kConfigValueLimit)
      refuse(here(), fmt::format("more than {} values, which is too many for a configuration",
                                 kConfigValueLimit));
    Value out;
    Origin origin = here();
    char c = peek();
    if (c == '{') {
      out = object(depth);
    } else if (c == '[') {
      out = array(depth);
    } else if (c == '"') {
      out = Value::of(string());
    } else if (c == '-' || is_digit(c)) {
      out = number();
    } else {
      out = word();
    }
    out.origin = origin;
    return out;
  }

  Value object(int depth) {
    Value out;
    out.kind = Value::Kind::object;
    Origin start = here();
    std::map<std::string, Origin, std::less<>> names;
    step();
    for (;;) {
      skip_blank();
      if (peek() == '}') break;
      if (done()) refuse(start, "this \"{\" is never closed");
      if (peek() != '"')
        refuse(here(), fmt::format("expected a key in double quotes or \"}}\", found {}", seen()));
      Origin key_origin = here();
      std::string key = string();
      auto [first, fresh] = names.emplace(key, key_origin);
      if (!fresh)
        refuse(key_origin, fmt::format("the key {} is given twice (first at {}); remove one",
                                       json_quote(key), first->second.str()));
      skip_blank();
      if (peek() != ':')
        refuse(here(),
               fmt::format("expected \":\" after the key {}, found {}", json_quote(key), seen()));
      step();
      skip_blank();
      out.members.push_back({std::move(key), key_origin, value(depth + 1)});
      if (!separator('}', start)) break;
    }
    step();
    return out;
  }

  Value array(int depth) {
    Value out;
    out.kind = Value::Kind::array;
    Origin start = here();
    step();
    for (;;) {
      skip_blank();
      if (peek() == ']') break;
      if (done()) refuse(start, "this \"[\" is never closed");
      out.array.push_back(value(depth + 1));
      if (!separator(']', start)) break;
    }
    step();
    return out;
  }

  /// Returns true after a comma, and false before the closing character, which is not consumed.
  bool separator(char close, const Origin& start) {
    skip_blank();
    if (peek() == ',') {
      step();
      return true;
    }
    if (peek() == close && !done()) return false;
    if (done()) refuse(start, fmt::format("this \"{}\" is never closed", close == '}' ? '{' : '['));
    refuse(here(), fmt::format("expected \",\" or \"{}\", found {}", close, seen()));
  }

  std::string string() {
    Origin start = here();
    std::string out;
    step();
    for (;;) {
      if (done() || peek() == '\n') refuse(start, "this string is never closed on its line");
      char c = peek();
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20)
        refuse(here(), seen() + " inside a string; write it as \\u00XX");
      if (c == '\\') {
        escape(&out);
      } else {
        size_t from = at_;
        step();
        out.append(text_.substr(from, at_ - from));
      }
    }
    step();
    return out;
  }

  void escape(std::string* out) {
    Origin start = here();
    step();
    char c = peek();
    switch (c) {
      case '"':
      case '\\':
      case '/':
        *out += c;
        break;
      case 'b':
        *out += '\b';
        break;
      case 'f':
        *out += '\f';
        break;
      case 'n':
        *out += '\n';
        break;
      case 'r':
        *out += '\r';
        break;
      case 't':
        *out += '\t';
        break;
      case 'u': {
        step();
        uint32_t code = hex4(start);
        if (code >= 0xD800 && code < 0xDC00) {
          if (peek() != '\\' || peek(1) != 'u') refuse(start, "half of a \\u surrogate pair");
          step(), step();
          uint32_t low = hex4(start);
          if (low < 0xDC00 || low > 0xDFFF) refuse(start, "half of a \\u surrogate pair");
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else if (code >= 0xDC00 && code < 0xE000) {
          refuse(start, "half of a \\u surrogate pair");
        }
        append_utf8(out, code);
        return;
      }
      default:
        refuse(start, fmt::format("unknown escape: \\ before {}", seen()));
    }
    step();
  }

  uint32_t hex4(const Origin& start) {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      char c = peek();
      uint32_t digit = is_digit(c)              ? c - '0'
                       : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                       : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                : 16;
      if (digit == 16) refuse(start, "\\u needs four hexadecimal digits");
      code = code << 4 | digit;
      step();
    }
    return code;
  }

  Value number() {
    Origin start = here();
    size_t from = at_;
    bool integral = true;
    auto digits = [&] {
      if (!is_digit(peek()))
        refuse(start, fmt::format("not a number: expected a digit, found {}", seen()));
      while (is_digit(peek())) step();
    };
    if (peek() == '-') step();
    if (peek() == '0' && is_digit(peek(1))) refuse(start, "a number must not start with 0");
    digits();
    if (peek() == '.') integral = false, step(), digits();
    if (peek() == 'e' || peek() == 'E') {
      integral = false;
      step();
      if (peek() == '+' || peek() == '-') step();
      digits();
    }
    if (is_word(peek()) || peek() == '.')
      refuse(start, fmt::format("not a number: {} inside it", seen()));
    const char* first = text_.data() + from;
    const char* last = text_.data() + at_;
    if (integral) {
      int64_t whole = 0;
      if (std::from_chars(first, last, whole).ec == std::errc()) return Value::of(whole);
    }
    double real = 0;
    if (std::from_chars(first, last, real).ec != std::errc())
      refuse(start, "this number is too large or too small for a double");
    return Value::of(real);
  }

  Value word() {
    Origin start = here();
    std::string found = seen();
    auto take = [&](std::string_view name) {
      auto rest = text_.substr(at_);
      if (!rest.starts_with(name) || (rest.size() > name.size() && is_word(rest[name.size()])))
        return false;
      for (size_t i = 0; i < name.size(); ++i) step();
      return true;
    };
    if (take("true")) return Value::of(true);
    if (take("false")) return Value::of(false);
    if (take("null")) return {};
    const char* hint = found == "\"True\"" || found == "\"False\"" || found == "\"None\""
                           ? "; JSON writes true, false, null"
                       : !done() && is_word(peek()) ? "; text goes in double quotes"
                                                    : "";
    refuse(start, fmt::format("expected a value, found {}{}", found, hint));
  }

  std::shared_ptr<const std::string> name_;
  std::string_view text_;
  size_t at_ = 0;
  size_t values_ = 0;
  int line_ = 1;
  int column_ = 1;
};

}  // namespace

Value read_json(const std::string& name, std::string_view text) {
  check<UsageError>(text.size() <= kConfigFileLimit, "{}: {} bytes; a configuration has at most {}",
                    name, text.size(), kConfigFileLimit);
  return Reader(name, text).document();
}

Value read_json_file(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, kConfigFileLimit);
  } catch (const ResourceError& error) {
    fail<UsageError>("{}", error.what());
  }
  return read_json(path, text);
}

}  // namespace trireme
