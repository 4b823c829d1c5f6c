//go:build linux

package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
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
	if err := netlink(upMessage(loopbackIndex)); err != nil {
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
	err = netlink(addressMessage(loopbackIndex, netip.PrefixFrom(address, address.BitLen())))
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		t.Fatalf("add address %s to lo: %v", text, err)
	}
}

// Connect sets a device up with an address of the network that it leads to. A further network is reached through a
// gateway there.
func Connect(t testing.TB, device string, address, further netip.Prefix, gateway netip.Addr) {
	t.Helper()
	found, err := net.InterfaceByName(device)
	must(t, err)
	for _, request := range [][]byte{
		addressMessage(found.Index, address), upMessage(found.Index), routeMessage(further, gateway),
	} {
		if err := netlink(request); err != nil {
			t.Fatalf("connect %s to %v and %v: %v", device, address, further, err)
		}
	}
}

// upMessage is RTM_NEWLINK that sets a device up.
func upMessage(index int) []byte {
	body := []byte{syscall.AF_UNSPEC, 0, 0, 0}                          // family, padding, type
	for _, word := range []int{index, syscall.IFF_UP, syscall.IFF_UP} { // flags, and which of them change
		body = binary.NativeEndian.AppendUint32(body, uint32(word))
	}
	return netlinkRequest(syscall.RTM_NEWLINK, 0, body)
}

// addressMessage is RTM_NEWADDR for an IPv4 address of a device.
func addressMessage(index int, address netip.Prefix) []byte {
	body := []byte{syscall.AF_INET, byte(address.Bits()), 0, 0} // flags, scope
	body = binary.NativeEndian.AppendUint32(body, uint32(index))
	body = attribute(body, syscall.IFA_LOCAL, address.Addr())
	body = attribute(body, syscall.IFA_ADDRESS, address.Addr())
	return netlinkRequest(syscall.RTM_NEWADDR, syscall.NLM_F_CREATE|syscall.NLM_F_EXCL, body)
}

// routeMessage is RTM_NEWROUTE to an IPv4 network through a gateway.
func routeMessage(to netip.Prefix, gateway netip.Addr) []byte {
	body := []byte{
		syscall.AF_INET, byte(to.Bits()), 0, 0, // source, type of service
		syscall.RT_TABLE_MAIN, syscall.RTPROT_STATIC, syscall.RT_SCOPE_UNIVERSE, syscall.RTN_UNICAST,
		0, 0, 0, 0, // flags
	}
	body = attribute(body, syscall.RTA_DST, to.Addr())
	body = attribute(body, syscall.RTA_GATEWAY, gateway)
	return netlinkRequest(syscall.RTM_NEWROUTE, syscall.NLM_F_CREATE|syscall.NLM_F_EXCL, body)
}

// attribute appends an IPv4 address to a request.
func attribute(body []byte, kind uint16, address netip.Addr) []byte {
	body = binary.NativeEndian.AppendUint16(body, syscall.SizeofRtAttr+4)
	body = binary.NativeEndian.AppendUint16(body, kind)
	return append(body, address.AsSlice()...)
}

// netlinkRequest puts the header of a request before its body.
func netlinkRequest(kind, flags uint16, body []byte) []byte {
	order := binary.NativeEndian
	m := order.AppendUint32(nil, uint32(syscall.SizeofNlMsghdr+len(body)))
	m = order.AppendUint16(m, kind)
	m = order.AppendUint16(m, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK|flags)
	m = order.AppendUint32(m, 1) // sequence
	m = order.AppendUint32(m, 0) // port
	return append(m, body...)
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
