package terminal

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"unsafe"
)

// Open returns a terminal with a number of columns, and the file that reads what is written to it. Reading ends with an
// error when the last writer is closed; a line ends with "\r\n".
func Open(t testing.TB, columns uint16) (terminal, read *os.File) {
	t.Helper()
	read, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	check(t, err)
	t.Cleanup(func() { _ = read.Close() })
	var locked, number int32
	size := struct{ rows, columns, x, y uint16 }{24, columns, 0, 0}
	control(t, read, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	control(t, read, syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(t, read, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	check(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	return terminal, read
}

func control(t testing.TB, f *os.File, request uintptr, argument unsafe.Pointer) {
	t.Helper()
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(argument)); failed != 0 {
		t.Fatal(failed)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
