import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

// The server that `npm run dev` talks to: a real one, or `npm run mock`.
const server = process.env.SEGUE_URL ?? "http://127.0.0.1:7434";

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    outDir: "dist",
    target: "es2022",
    // Every file is a file: the content security policy allows no inline code.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    chunkSizeWarningLimit: 700,
    manifest: "manifest.json",
  },
  server: { port: 7435, proxy: { "/api": { target: server, changeOrigin: true } } },
  test: { environment: "jsdom", include: ["src/**/*.test.{ts,tsx}"] },
});
