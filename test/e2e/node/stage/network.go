//go:build linux

package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"
)

// NodeAddress is what kubelets give as their node's: they refuse loopback addresses, and one beside them on lo will do.
const NodeAddress = "10.77.0.1"

// loopbackIndex is the number of lo in every network namespace.
const loopbackIndex = 1

// raiseLoopback sets lo up.
func raiseLoopback() error {
	order := binary.NativeEndian
	m := netlinkHeader(syscall.RTM_NEWLINK, 0, syscall.SizeofIfInfomsg)
	m = append(m, syscall.AF_UNSPEC, 0)       // family, padding
	m = order.AppendUint16(m, 0)              // type
	m = order.AppendUint32(m, loopbackIndex)  //
	m = order.AppendUint32(m, syscall.IFF_UP) // flags
	m = order.AppendUint32(m, syscall.IFF_UP) // which of them change
	if err := netlink(m); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// AddAddress gives lo another IPv4 address, such as NodeAddress.
func AddAddress(t testing.TB, text string) {
	t.Helper()
	address, err := netip.ParseAddr(text)
	must(t, err)
	// Stages of one process share their network.
	if err := netlink(addressMessage(address)); err != nil && !errors.Is(err, syscall.EEXIST) {
		t.Fatalf("add address %s to lo: %v", text, err)
	}
}

// addressMessage is RTM_NEWADDR for an IPv4 address of lo, with a mask of 32 bits.
func addressMessage(address netip.Addr) []byte {
	const attribute = syscall.SizeofRtAttr + 4
	order := binary.NativeEndian
	m := netlinkHeader(syscall.RTM_NEWADDR, syscall.NLM_F_CREATE|syscall.NLM_F_EXCL,
		syscall.SizeofIfAddrmsg+2*attribute)
	m = append(m, syscall.AF_INET, 32, 0, 0) // family, mask, flags, scope
	m = order.AppendUint32(m, loopbackIndex)
	for _, kind := range []uint16{syscall.IFA_LOCAL, syscall.IFA_ADDRESS} {
		m = order.AppendUint16(m, attribute)
		m = order.AppendUint16(m, kind)
		m = append(m, address.AsSlice()...)
	}
	return m
}

// netlinkHeader begins a request with a body of so many bytes.
func netlinkHeader(kind, flags uint16, body uint32) []byte {
	order := binary.NativeEndian
	m := order.AppendUint32(nil, syscall.SizeofNlMsghdr+body)
	m = order.AppendUint16(m, kind)
	m = order.AppendUint16(m, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK|flags)
	m = order.AppendUint32(m, 1)    // sequence
	return order.AppendUint32(m, 0) // port
}

// netlink sends a request to the kernel: programs that could do it may be missing. The error is the kernel's answer.
func netlink(request []byte) error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Sendto(fd, request, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return err
	}
	for _, m := range messages {
		if m.Header.Type != syscall.NLMSG_ERROR || len(m.Data) < 4 {
			continue
		}
		if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
			return syscall.Errno(-code)
		}
	}
	return nil
}
