// Section VI-A's decompression engine: what arrives with type of service 0x2C is restored and gets
// 0x28 again, or dropped where it is not what compression_engine makes.
module decompression_engine #(
    parameter int MAX_PACKET_BYTES = 9216,  // nothing is restored to more
    parameter int BUFFER_WORDS = 512        // as packet_engine says
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic [255:0] s_axis_tdata,
    input  logic [ 31:0] s_axis_tkeep,
    input  logic         s_axis_tlast,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic [255:0] m_axis_tdata,
    output logic [ 31:0] m_axis_tkeep,
    output logic         m_axis_tlast,
    output logic [ 31:0] passed,            // packets, as packet_engine says
    output logic [ 31:0] changed,
    output logic [ 31:0] kept,
    output logic [ 31:0] dropped
);
  packet_engine #(
      .DECOMPRESS(1'b1), .MARK(6'h0B), .NEW_MARK(6'h0A),
      .MAX_PACKET_BYTES(MAX_PACKET_BYTES), .BUFFER_WORDS(BUFFER_WORDS)
  ) engine (
      .clk, .rst, .layout(5'd0), .s_axis_tvalid, .s_axis_tready, .s_axis_tdata, .s_axis_tkeep,
      .s_axis_tlast, .m_axis_tvalid, .m_axis_tready, .m_axis_tdata, .m_axis_tkeep, .m_axis_tlast,
      .passed, .changed, .kept, .dropped);
endmodule
