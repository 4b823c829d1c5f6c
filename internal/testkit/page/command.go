package page

import (
	"regexp"
	"strings"
)

// Commands returns the words of each simple command that a shell would run for a block, those in $(…) too. Where lines
// begin with a prompt, the others are output. Assignments and redirections are left out; $(…) is "$" in a word.
func (b Block) Commands() [][]string {
	text := b.Text
	if prompts := regexp.MustCompile(`(?m)^\$ ((?:.*\\\n)*.*)$`).FindAllStringSubmatch(text, -1); prompts != nil {
		text = ""
		for _, p := range prompts {
			text += p[1] + "\n"
		}
	}
	s := shell{in: text}
	s.run(0)
	return s.all
}

// shell splits as POSIX' shells do, as far as the pages need it.
type shell struct {
	in  string
	all [][]string
}

var (
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9]*=`)
	heredoc    = regexp.MustCompile(`^<<-?['"]?(\w+)['"]?`)
)

// run reads until end, 0 for that of the text.
func (s *shell) run(end byte) {
	var words []string
	var word strings.Builder
	var inWord, skip bool // skip: the word is the target of a redirection
	var until string      // the last line of a here-document
	endWord := func() {
		w := word.String()
		if inWord && !skip && (len(words) > 0 || !assignment.MatchString(w)) {
			words = append(words, w)
		}
		skip = skip && !inWord
		inWord = false
		word.Reset()
	}
	endCommand := func() {
		if endWord(); len(words) > 0 {
			s.all = append(s.all, words)
		}
		words = nil
	}
	for s.in != "" {
		c := s.in[0]
		s.in = s.in[1:]
		switch {
		case c == end:
			endCommand()
			return
		case c == '\\' && s.in != "":
			if s.in[0] != '\n' {
				word.WriteByte(s.in[0])
				inWord = true
			}
			s.in = s.in[1:]
		case c == '\'':
			text, rest, _ := strings.Cut(s.in, "'")
			word.WriteString(text)
			inWord, s.in = true, rest
		case c == '"':
			inWord = true
			s.quoted(&word)
		case c == '$' && strings.HasPrefix(s.in, "("):
			s.in = s.in[1:]
			s.run(')')
			word.WriteByte('$')
			inWord = true
		case c == '#' && !inWord:
			_, rest, _ := strings.Cut(s.in, "\n")
			s.in = "\n" + rest
		case c == '\n' && until != "":
			endCommand()
			_, s.in, _ = strings.Cut("\n"+s.in, "\n"+until+"\n")
			until = ""
		case strings.IndexByte("\n;|&", c) >= 0:
			endCommand()
		case c == '<' && heredoc.MatchString("<"+s.in):
			endWord()
			m := heredoc.FindStringSubmatch("<" + s.in)
			until, s.in = m[1], s.in[len(m[0])-1:]
		case c == '<' || c == '>':
			endWord()
			s.in, skip = strings.TrimLeft(s.in, "> "), true
		case c == ' ' || c == '\t':
			endWord()
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
}

// quoted reads to the end of a text in double quotes.
func (s *shell) quoted(word *strings.Builder) {
	for s.in != "" {
		c := s.in[0]
		s.in = s.in[1:]
		switch {
		case c == '"':
			return
		case c == '\\' && s.in != "":
			word.WriteByte(s.in[0])
			s.in = s.in[1:]
		case c == '$' && strings.HasPrefix(s.in, "("):
			s.in = s.in[1:]
			s.run(')')
			word.WriteByte('$')
		default:
			word.WriteByte(c)
		}
	}
}
