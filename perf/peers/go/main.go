// A relay in Go to compare with, written the way such relays are described in public: one reading goroutine per socket of a
// SO_REUSEPORT group, locked to its thread, with buffers that are made once, and nothing allocated per packet.
//
// It puts every packet into a datagram of its own behind the record header of Firsthop's trunk. A client's first STUN check
// names its session in the open: no token is opened, nothing is verified, nothing expires, which is in its favour.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

const (
	packetMax    = 2048
	recordHeader = 18
	socketBuffer = 8 << 20
	// Not in package syscall.
	soReusePort = 15
)

// flows maps a client's address to its session. Readers are many and writers few: a check writes, media reads.
type flows struct {
	lock  sync.RWMutex
	table map[netip.AddrPort]uint32
}

func (f *flows) get(client netip.AddrPort) (uint32, bool) {
	f.lock.RLock()
	session, known := f.table[client]
	f.lock.RUnlock()
	return session, known
}

func (f *flows) set(client netip.AddrPort, session uint32) {
	f.lock.Lock()
	f.table[client] = session
	f.lock.Unlock()
}

// session reads the session from the USERNAME of a STUN message: eight hexadecimal digits before the colon.
func session(packet []byte) (uint32, bool) {
	if len(packet) < 20 || packet[0] > 3 {
		return 0, false
	}
	for at := 20; at+4 <= len(packet); {
		kind := binary.BigEndian.Uint16(packet[at:])
		length := int(binary.BigEndian.Uint16(packet[at+2:]))
		at += 4
		if at+length > len(packet) {
			return 0, false
		}
		if kind == 0x0006 && length > 8 {
			number, err := strconv.ParseUint(string(packet[at:at+8]), 16, 32)
			return uint32(number), err == nil
		}
		at += (length + 3) &^ 3
	}
	return 0, false
}

// up forwards what clients send.
func up(public, internal *net.UDPConn, table *flows, owners []netip.AddrPort) error {
	runtime.LockOSThread()
	buffer := make([]byte, recordHeader+packetMax)
	for {
		length, client, err := public.ReadFromUDPAddrPort(buffer[recordHeader:])
		if err != nil {
			return err
		}
		client = netip.AddrPortFrom(client.Addr().Unmap(), client.Port())
		packet := buffer[recordHeader : recordHeader+length]
		number, known := session(packet)
		if known {
			table.set(client, number)
		} else if number, known = table.get(client); !known {
			continue
		}
		binary.BigEndian.PutUint16(buffer[0:], uint16(length))
		buffer[2], buffer[3] = 0, 0
		binary.BigEndian.PutUint32(buffer[4:], number)
		binary.BigEndian.PutUint32(buffer[8:], 0)
		binary.BigEndian.PutUint16(buffer[12:], client.Port())
		address := client.Addr().As4()
		copy(buffer[14:18], address[:])
		owner := owners[(number-1)%uint32(len(owners))]
		if _, err := internal.WriteToUDPAddrPort(buffer[:recordHeader+length], owner); err != nil {
			return err
		}
	}
}

// down forwards what owners send.
func down(internal, public *net.UDPConn) error {
	runtime.LockOSThread()
	buffer := make([]byte, recordHeader+packetMax)
	for {
		length, _, err := internal.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}
		if length <= recordHeader {
			continue
		}
		client := netip.AddrPortFrom(
			netip.AddrFrom4([4]byte(buffer[14:18])), binary.BigEndian.Uint16(buffer[12:]))
		if _, err := public.WriteToUDPAddrPort(buffer[recordHeader:length], client); err != nil {
			return err
		}
	}
}

// listen opens one socket of a group that shares an address.
func listen(address string) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soReusePort, 1)
		})
		if err != nil {
			return err
		}
		return failed
	}}
	packets, err := config.ListenPacket(context.Background(), "udp4", address)
	if err != nil {
		return nil, err
	}
	socket := packets.(*net.UDPConn)
	return socket, socket.SetReadBuffer(socketBuffer)
}

func run() error {
	public := flag.String("listen", "", "where clients send to")
	internal := flag.String("internal", "", "where owners send to")
	owners := flag.Int("owners", 1, "how many owners")
	port := flag.Int("owner-port", 0, "their port")
	flag.Parse()

	var addresses []netip.AddrPort
	address := netip.AddrFrom4([4]byte{127, 1, 0, 1})
	for range *owners {
		addresses = append(addresses, netip.AddrPortFrom(address, uint16(*port)))
		address = address.Next()
	}
	table := &flows{table: make(map[netip.AddrPort]uint32, 1<<16)}
	failed := make(chan error)
	// As many as there are processors to run on.
	for range runtime.NumCPU() {
		public, err := listen(*public)
		if err != nil {
			return err
		}
		internal, err := listen(*internal)
		if err != nil {
			return err
		}
		go func() { failed <- up(public, internal, table, addresses) }()
		go func() { failed <- down(internal, public) }()
	}
	return <-failed
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}
