// Looks at the headers of a packet as its words go by, and says what is to be done with it. To be
// changed is the payload of a TCP or UDP packet over IPv4 over Ethernet, whole, that carries the
// mark: the differentiated services code point, the upper six bits of what was the type of service.
// The lower two belong to routers (explicit congestion notification) and say nothing here.
module packet_classifier #(
    parameter logic [5:0] MARK = 6'h0A,         // the code point: 0x28 >> 2
    parameter bit DROP_OTHERS = 1'b0,           // a marked TCP or UDP packet that cannot be changed
                                                // is dropped, not passed
    parameter int MAX_PACKET_BYTES = 9216       // a longer one is not changed
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         word_valid,    // a word of 32 bytes is taken in this cycle
    input  logic [255:0] word,
    input  logic [  5:0] word_bytes,    // 1 to 32; 32 but for a packet's last
    input  logic         word_last,
    output logic         ready,         // a word may be taken
    output logic         class_valid,
    input  logic         class_ready,
    output logic [  1:0] class_action,  // 0 pass, 1 change, 2 drop
    output logic [  7:0] class_header_bytes,   // Ethernet, IPv4 and TCP or UDP together
    output logic [ 15:0] class_payload_bytes,  // by IPv4's total length
    output logic         class_is_udp,
    output logic [  6:0] class_l4_at,   // where TCP or UDP begins
    output logic [  7:0] class_tos,
    output logic [ 15:0] class_total,   // IPv4's total length
    output logic [ 15:0] class_ip_sum,  // the checksums as they are
    output logic [ 15:0] class_l4_sum
);
  localparam int HEAD_WORDS = 3;  // 91 bytes reach TCP's checksum behind the longest IPv4 header
  logic [HEAD_WORDS*256-1:0] head;
  logic [1:0] next_word;  // HEAD_WORDS: the rest of the packet is not looked at
  logic [6:0] seen;       // bytes of the packet in `head`
  logic decide;           // all that will be seen of a packet has been

  assign class_valid = decide;
  assign ready = !decide || class_ready;
  always_ff @(posedge clk) begin
    if (word_valid) begin
      for (int i = 0; i < HEAD_WORDS; i = i + 1) if (next_word == 2'(i)) head[256*i+:256] <= word;
      if (next_word != 2'(HEAD_WORDS)) seen <= {next_word, 5'd0} + {1'b0, word_bytes};
    end
    if (rst) begin
      next_word <= 2'd0;
      decide <= 1'b0;
    end else if (ready) begin
      decide <= word_valid && next_word != 2'(HEAD_WORDS) &&
          (word_last || next_word == 2'(HEAD_WORDS - 1));
      if (word_valid) begin
        if (word_last) next_word <= 2'd0;
        else if (next_word != 2'(HEAD_WORDS)) next_word <= next_word + 2'd1;
      end
    end
  end

  // The number at byte `at` of the IPv4 header or before it.
  `define BIG_ENDIAN_16(bits, at) {bits[8*(at)+:8], bits[8*(at)+8+:8]}
  localparam int L4_AT = 34;  // where TCP or UDP begins behind an IPv4 header without options
  // verilator lint_off UNUSEDSIGNAL
  logic [159:0] l4;           // its first 20 bytes; ports and the like are nobody's business here
  // verilator lint_on UNUSEDSIGNAL
  logic [ 15:0] ethertype, fragment, udp_bytes, l4_bytes;
  logic [  7:0] protocol;
  logic [  3:0] version, ip_words, tcp_words;
  logic is_ipv4, is_tcp, is_udp, is_marked, is_whole, can_change;
  always_comb begin
    ethertype = `BIG_ENDIAN_16(head, 12);
    {version, ip_words} = head[8*14+:8];
    class_tos = head[8*15+:8];
    class_total = `BIG_ENDIAN_16(head, 16);
    fragment = `BIG_ENDIAN_16(head, 20);
    protocol = head[8*23+:8];
    class_ip_sum = `BIG_ENDIAN_16(head, 24);
    l4 = 160'(head >> (8 * L4_AT));
    for (int i = 6; i < 16; i = i + 1) begin
      if (ip_words == 4'(i)) l4 = 160'(head >> (8 * L4_AT + 32 * (i - 5)));
    end
    class_l4_at = 7'd14 + {1'b0, ip_words, 2'd0};
    is_ipv4 = ethertype == 16'h0800 && version == 4'd4 && seen >= 7'(L4_AT);
    is_tcp = protocol == 8'd6;
    is_udp = protocol == 8'd17;
    class_is_udp = is_udp;
    tcp_words = l4[8*12+4+:4];
    udp_bytes = `BIG_ENDIAN_16(l4, 4);
    class_l4_sum = is_udp ? `BIG_ENDIAN_16(l4, 6) : `BIG_ENDIAN_16(l4, 16);
    class_header_bytes = {1'b0, class_l4_at} + (is_udp ? 8'd8 : {2'd0, tcp_words, 2'd0});
    l4_bytes = class_total - {10'd0, ip_words, 2'd0};
    class_payload_bytes = class_total - ({8'd0, class_header_bytes} - 16'd14);
    is_marked = is_ipv4 && class_tos[7:2] == MARK && (is_tcp || is_udp);
    // Lengths that contradict each other, fragments, headers that the stream ends in.
    is_whole = ip_words >= 4'd5 && (fragment & 16'h3FFF) == 16'd0 &&
        {1'b0, seen} >= {1'b0, class_l4_at} + (is_udp ? 8'd8 : 8'd20) &&
        {8'd0, class_header_bytes} - 16'd14 <= class_total &&
        (is_udp ? udp_bytes == l4_bytes : tcp_words >= 4'd5);
    can_change = is_whole && class_total <= 16'(MAX_PACKET_BYTES - 14);
    if (!is_marked || is_whole && class_payload_bytes == 16'd0) class_action = 2'd0;
    else if (can_change) class_action = 2'd1;
    else class_action = DROP_OTHERS ? 2'd2 : 2'd0;
  end
  `undef BIG_ENDIAN_16
endmodule
