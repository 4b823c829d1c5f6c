package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readAhead is how much is read at once. With less, more of the time goes into acknowledging what was read.
const readAhead = 64 << 10

// readList reads the metadata of a list, and has add read each item by itself. Its text is valid until add returns, and
// the managed fields of its metadata are left out.
func readList(in io.Reader, metadata *metav1.ListMeta, add func(item []byte) error) error {
	v := values{in: in}
	return v.fields(func(name []byte) error {
		if first, err := v.peek(); err == nil && string(name) == `"items"` && first != 'n' { // items may be null
			return v.members('[', ']', func() error {
				item, err := v.next()
				if err != nil {
					return err
				}
				return add(item)
			})
		}
		text, err := v.next()
		if err == nil && string(name) == `"metadata"` {
			err = json.Unmarshal(text, metadata)
		}
		return err
	})
}

// readFields has use read each field of an object. Names are strings in JSON.
func readFields(object []byte, use func(name, value []byte)) error {
	v := values{read: object}
	return v.fields(func(name []byte) error {
		value, err := v.next()
		if err == nil {
			use(name, value)
		}
		return err
	})
}

// within has read take the next value in parts, such as its fields, so that a text is not looked through once for each
// object that it is in. It returns the text of the value, and takes it whole where read fails. All of v must be read.
func (v *values) within(read func() error) (text []byte, whole bool, err error) {
	from := v.at
	if whole = read() == nil; !whole {
		v.at = from
		_, err = v.next()
	}
	return v.read[from:v.at], whole, err
}

// values splits JSON into the texts of its values. It finds where each one ends and leaves it to others to check it,
// which makes it several times as fast as a json.Decoder.
type values struct {
	in   io.Reader // nil where all is read
	read []byte    // what is read and not yet taken begins at position at
	at   int
	kept []byte // the last value, if a part of it was left out
}

// more reads on. What is not yet taken moves to the front.
func (v *values) more() error {
	if v.in == nil {
		return io.ErrUnexpectedEOF
	}
	v.read, v.at = append(v.read[:0], v.read[v.at:]...), 0
	v.read = slices.Grow(v.read, readAhead)
	n, err := v.in.Read(v.read[len(v.read):cap(v.read)])
	v.read = v.read[:len(v.read)+n]
	switch {
	case n > 0 || err == nil:
		return nil
	case err == io.EOF: //nolint:errorlint // readers return it as it is
		return io.ErrUnexpectedEOF
	}
	return err
}

// peek returns the next byte that is not white space, without taking it.
func (v *values) peek() (byte, error) {
	for {
		for ; v.at < len(v.read); v.at++ {
			if c := v.read[v.at]; c > ' ' {
				return c, nil
			}
		}
		if err := v.more(); err != nil {
			return 0, err
		}
	}
}

// skip takes a byte, which must be this one.
func (v *values) skip(want byte) error {
	got, err := v.peek()
	if err == nil && got != want {
		err = fmt.Errorf("must have %c, has %c", want, got)
	}
	v.at++
	return err
}

// members calls member at the beginning of each member of an object or array.
func (v *values) members(begin, end byte, member func() error) error {
	err := v.skip(begin)
	for first := true; err == nil; first = false {
		var c byte
		if c, err = v.peek(); err == nil && c == end {
			v.at++
			return nil
		}
		if err == nil && !first {
			err = v.skip(',')
		}
		if err == nil {
			err = member()
		}
	}
	return err
}

// fields calls field before the value of each field of an object.
func (v *values) fields(field func(name []byte) error) error {
	return v.members('{', '}', func() error {
		name, err := v.next()
		if err != nil {
			return err
		}
		if v.in != nil {
			name = slices.Clone(name)
		}
		if err := v.skip(':'); err != nil {
			return err
		}
		return field(name)
	})
}

// next takes a value. Its text is valid until the next call. Fields managedFields of the objects in it are empty.
func (v *values) next() ([]byte, error) {
	if _, err := v.peek(); err != nil {
		return nil, err
	}
	v.kept = v.kept[:0]
	var (
		n     int // length of what is known of the value, from position at on
		from  int // what is not yet in kept begins here
		field int // where the name of a field managedFields ends; 0 for none
		depth int
	)
	for {
		if v.at+n == len(v.read) {
			if err := v.more(); err != nil {
				return nil, err
			}
			continue
		}
		c := v.read[v.at+n]
		if field > 0 && depth == 2 && (c == ',' || c == '}') {
			if v.read[v.at+field] == ':' { // and so not the end of a value that is this text
				v.kept = append(append(v.kept, v.read[v.at+from:v.at+field]...), ":[]"...)
				from = n
			}
			field = 0
		}
		switch c {
		case '"':
			length, err := v.quoted(n)
			if err != nil {
				return nil, err
			}
			if depth == 2 && string(v.read[v.at+n:v.at+n+length]) == `"managedFields"` {
				field = n + length
			}
			if n += length; depth == 0 {
				return v.take(n, from), nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 { // behind a number, true, false or null
				if n == 0 {
					return nil, fmt.Errorf("must have a value, has %c", c)
				}
				return v.take(n, from), nil
			}
			if c == '}' || c == ']' {
				if depth--; depth == 0 {
					return v.take(n+1, from), nil
				}
			}
		}
		n++
	}
}

// take takes n bytes, of which those before from are in kept.
func (v *values) take(n, from int) []byte {
	text := v.read[v.at+from : v.at+n]
	v.at += n
	if from == 0 {
		return text
	}
	v.kept = append(v.kept, text...)
	return v.kept
}

// quoted returns the length of the string that begins n bytes behind position at.
func (v *values) quoted(n int) (length int, err error) {
	if end := bytes.IndexByte(v.read[v.at+n+1:], '"'); end >= 0 && v.read[v.at+n+end] != '\\' {
		return end + 2, nil // most strings; in others a quote follows soon
	}
	for length = 1; ; {
		text := v.read[v.at+n:]
		for length < len(text) {
			switch text[length] {
			case '"':
				return length + 1, nil
			case '\\':
				length++ // the byte behind it ends nothing
			}
			length++
		}
		if err := v.more(); err != nil {
			return 0, err
		}
	}
}
