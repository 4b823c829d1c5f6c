package usage

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// file is a file that is read again and again. It is opened by the first read, and anew after one that failed.
type file struct {
	name string
	open *os.File
}

// read returns the content of the file in buf, cut off at its length; nil when it cannot be read.
func (f *file) read(root *os.Root, buf []byte) []byte {
	if f.open == nil {
		opened, err := root.Open(f.name)
		if err != nil {
			return nil
		}
		f.open = opened
	}
	n, err := f.open.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		f.close() // the group is gone
		return nil
	}
	return buf[:n]
}

func (f *file) close() {
	if f.open != nil {
		_ = f.open.Close()
		f.open = nil
	}
}

// number reads the decimal at the beginning of a text, after blanks; false when there is none or it has more than 18
// digits.
func number(text []byte) (n int64, rest []byte, ok bool) {
	text = bytes.TrimLeft(text, " \t")
	i := 0
	for ; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		if i == 18 {
			return 0, text, false
		}
		n = n*10 + int64(text[i]-'0')
	}
	return n, text[i:], i > 0
}

// field finds the line that begins with a name and reads the number behind it; false without such a line.
func field(text []byte, name string) (int64, bool) {
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		if len(line) > len(name) && string(line[:len(name)]) == name {
			if n, _, ok := number(line[len(name):]); ok {
				return n, true
			}
		}
	}
	return 0, false
}

// after reads the number behind the first occurrence of a name.
func after(text []byte, name string) (int64, bool) {
	i := bytes.Index(text, []byte(name))
	if i < 0 {
		return 0, false
	}
	n, _, ok := number(text[i+len(name):])
	return n, ok
}

// hundredths reads the decimal fraction behind a name, with two digits, in hundredths.
func hundredths(text []byte, name string) (int64, bool) {
	i := bytes.Index(text, []byte(name))
	if i < 0 {
		return 0, false
	}
	whole, rest, ok := number(text[i+len(name):])
	if !ok || len(rest) < 3 || rest[0] != '.' || rest[1] < '0' || rest[1] > '9' || rest[2] < '0' || rest[2] > '9' {
		return 0, false
	}
	return whole*100 + int64(rest[1]-'0')*10 + int64(rest[2]-'0'), true
}
